"""A coverage-guided fuzzer on the decoders of frames, from frames that are right."""

import subprocess
import sys

import pytest

from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.wire import encode
from tests.unit.drafting.service.helpers import Client, store_of, tokens
from tests.unit.drafting.service.test_wire import FINE, whole

RUNS = 40_000


@pytest.mark.slow
def test_no_frame_that_a_fuzzer_finds_does_harm(tmp_path):
    """Crashes are left in `tmp_path`, with the frame."""
    client = Client()
    client.register(7, [1, 2])
    store = store_of()
    asked = [encode(FINE), client.link.compose(1.0)]
    for number, frame in enumerate(asked):
        (tmp_path / f"ask{number}").write_bytes(b"\0" + frame)
        (tmp_path / f"answer{number}").write_bytes(b"\1" + encode(reply_to(frame, store, 1.0)))
    words = [whole(7, 0, 0), whole(7, 0, 0, 3), tokens(3, 4, 5).tobytes()]
    (tmp_path / "fields of an ask").write_bytes(bytes([2, 8, 24, 32]) + tokens(1, 2).tobytes() + b"".join(words))
    words = [whole(7, 1, 0, 1), whole(7, 0, 1, 4, 0), whole(7, 1, 0, 3), tokens(3, 4, 5).tobytes()]
    (tmp_path / "fields of an answer").write_bytes(bytes([3, 32, 40, 32]) + b"".join(words))
    command = [sys.executable, "-m", "tests.unit.drafting.service.fuzz_frames"]
    options = [f"-runs={RUNS}", "-seed=1", "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/crash-", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr
