import json
import os
import signal
import subprocess
import sys
import time

import pytest

from sestina.rewards.messages import END, LENGTH_BYTES, Ready, Scored, Task, answer, begin, frame
from sestina.rewards.process import COMMAND
from tests.unit.rewards.helpers import function, running, sample

LIMIT_S = 20


@pytest.fixture
def worker():
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def ask(worker, message):
    worker.stdin.write(frame(message))
    worker.stdin.flush()
    return read(worker)


def read(worker):
    return answer(worker.stdout.read(int.from_bytes(worker.stdout.read(LENGTH_BYTES), "little")))


def test_a_worker_leaves_when_its_stdin_closes(worker):
    assert ask(worker, begin(function("native"))) == Ready()
    worker.stdin.close()
    assert worker.wait(LIMIT_S) == 0


def test_a_worker_leaves_when_nothing_was_ever_asked(worker):
    worker.stdin.close()
    assert worker.wait(LIMIT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_leaves_signals_for_all_to_its_parent(worker, number):
    """Ctrl-C, and what SLURM sends to every process of a job before it takes nodes back."""
    assert ask(worker, begin(function("obey"))) == Ready()
    worker.send_signal(number)
    match ask(worker, Task(id=7, sample=sample("go on", 0.5))):
        case Scored(id=7, reward=0.5, elapsed_s=elapsed_s):
            assert 0 <= elapsed_s < LIMIT_S
        case other:
            pytest.fail(f"{other}")


def test_a_worker_leaves_when_it_is_told_to(worker):
    assert ask(worker, begin(function("obey"))) == Ready()
    worker.send_signal(END)
    assert worker.wait(LIMIT_S) == -END


def test_a_busy_worker_ends_with_its_parent(tmp_path):
    """The parent is killed with SIGKILL while the worker is deep in user code and reads no stdin."""
    path = tmp_path / "pid"
    source = f"""
import asyncio
from sestina.rewards.pool import RewardPool
from tests.unit.rewards.helpers import function, sample
async def main():
    async with RewardPool(function("obey", timeout_s=60.0)) as pool:
        await pool.score(sample("spin", meta={{"path": {json.dumps(str(path))}}}))
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", source]) as parent:
        pid = int(wait_for(lambda: path.exists() and path.read_text()))
        assert running(pid)
        parent.kill()
    wait_for(lambda: not running(pid))


def wait_for(condition):
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        os.sched_yield()
        time.sleep(0.01)
    return found
