"""Rules between the keys of an engine that is a server."""

import pytest

from sestina.config.load import load
from tests.unit.config.helpers import changed, violations

SGLANG = ("rollout.engine=sglang",)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ('["--port","45454"]', "--port"),
        ("[--port=45454]", "--port"),
        ('["--chunked-prefill-size","512","--host","0.0.0.0","--page","1"]', "--host, --page"),
        ('["--max-total-tokens","99"]', "--max-total-tokens"),
    ],
)
def test_a_server_is_told_by_its_rank_where_it_listens_and_what_it_holds(given, refused):
    [line] = violations(f"rollout.engine.extra_args={given}", argv=SGLANG)
    assert line.startswith("rollout.engine.extra_args: ")
    said = f"with rollout.engine.kind 'sglang'; without {refused}, which other keys or the rank itself decide on"
    assert line.endswith(said)


def test_how_a_server_computes_is_the_users():
    arguments = '["--chunked-prefill-size","512","--attention-backend=triton","--enable-metrics"]'
    load(changed(f"rollout.engine.extra_args={arguments}", argv=SGLANG))
