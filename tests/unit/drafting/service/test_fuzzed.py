"""A coverage-guided fuzzer on the decoders of frames, from frames that are right."""

import subprocess
import sys

import pytest

from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.wire import encode
from tests.unit.drafting.service.helpers import Client, store_of
from tests.unit.drafting.service.test_wire import FINE

RUNS = 40_000


@pytest.mark.slow
def test_no_frame_that_a_fuzzer_finds_does_harm(tmp_path):
    """Crashes are left in `tmp_path`, with the frame."""
    client = Client()
    client.register(7, [1, 2])
    store = store_of()
    asked = [encode(FINE), client.link.compose(1.0)]
    for number, frame in enumerate(asked):
        (tmp_path / f"ask{number}").write_bytes(b"\x00" + frame)
        (tmp_path / f"answer{number}").write_bytes(b"\xff" + encode(reply_to(frame, store, 1.0)))
    command = [sys.executable, "-m", "tests.unit.drafting.service.fuzz_frames"]
    options = [f"-runs={RUNS}", "-seed=1", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/crash-", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr
