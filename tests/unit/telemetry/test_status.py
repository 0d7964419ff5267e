import subprocess
import sys
import time
from dataclasses import replace

import pytest

from sestina.core.errors import RunDirError
from sestina.telemetry.status import Status, StatusWriter, StepSummary, read_status, write_status

from .helpers import step_values, summary_of

STATUS = Status(
    name="toy",
    pid=77,
    state="running",
    completed=False,
    phase="rollout: 37 of 512 responses left, longest g12/s3 at 310 tokens on instance 1",
    step=11,
    num_steps=40,
    accuracy=0.742,
    eta_s=95.0,
    rows=(summary_of(10, **{"eval/accuracy": 0.742}), summary_of(11)),
    ranks=(),
    started_at=1000.0,
    updated_at=1040.0,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "status.json"


def test_a_status_comes_back(path):
    assert read_status(path) is None
    write_status(path, STATUS)
    assert read_status(path) == STATUS
    without = replace(STATUS, accuracy=None, eta_s=None, rows=(), state="failed")
    write_status(path, without)
    assert read_status(path) == without
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{}", '{"name": "toy"'])
def test_a_file_that_is_no_status_is_named(path, content):
    path.write_text(content)
    with pytest.raises(RunDirError, match=r"status\.json: not a status file"):
        read_status(path)


def test_a_reader_never_sees_half_a_status(path):
    script = f"""
from dataclasses import replace
from pathlib import Path
from sestina.telemetry.status import write_status
from tests.unit.telemetry.test_status import STATUS
for step in range(400):
    write_status(Path({str(path)!r}), replace(STATUS, step=step, phase="x" * 20000))
"""
    writer = subprocess.Popen([sys.executable, "-c", script])
    deadline, seen = time.monotonic() + 30, set()
    while writer.poll() is None:
        assert time.monotonic() < deadline, "the writer takes more than 30 s"
        status = read_status(path)
        if status is not None:
            assert len(status.phase) == 20000
            seen.add(status.step)
    assert writer.returncode == 0
    assert len(seen) > 1


def test_four_a_second_are_written_and_every_change_of_state(path):
    writer = StatusWriter(path)

    def write(step, now, state="running"):
        written = writer.write(replace(STATUS, step=step, state=state), now)
        found = read_status(path)
        assert written == (found is not None and (found.step, found.state) == (step, state))
        return written

    assert [write(i, 5 + i / 8) for i in range(6)] == [True, False, True, False, True, False]
    assert write(6, 5.7, "finished")
    assert not write(7, 5.8, "finished")
    assert write(8, 6.0, "finished")


def test_a_summary_is_picked_from_the_metrics():
    summary = StepSummary.of(12, 40, step_values(0.5, **{"eval/accuracy": 0.25}), 9.0)
    assert (summary.step, summary.num_steps, summary.reward, summary.accuracy) == (12, 40, 0.5, 0.25)
    assert (summary.step_s, summary.rollout_s, summary.train_s, summary.weights_s) == (3.4, 1.9, 1.2, 0.1)
    assert (summary.response_tokens, summary.tokens_per_s, summary.eta_s) == (38.25, 4210.4, 9.0)
    assert summary_of(1).accuracy is None
    with pytest.raises(KeyError, match="perf/step_s"):
        StepSummary.of(12, 40, {k: v for k, v in step_values(0.5).items() if k != "perf/step_s"}, 9.0)
