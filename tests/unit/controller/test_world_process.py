import os
import signal
import sys
import threading
import time

import pytest

from sestina.config.load import load
from sestina.controller import world_process
from sestina.controller.world_process import WorldProcess, world_command, world_environment
from sestina.core.errors import UserError
from tests.unit.config.helpers import composed

CONFIG = load(composed("+exp=quickstart"))


def test_every_role_stands_on_the_command_line():
    config = load(composed("+exp=quickstart", "rollout.num_instances=2", "dir=runs/a b"))
    mpiexec, *words = world_command(config, quiet=True)
    rank = [sys.executable, "-m", "mpi4py", "-m", "sestina.controller.rank"]
    assert mpiexec.endswith("mpiexec")
    assert words == [
        "-disable-auto-cleanup",
        *("-n", "1", *rank, "controller", "runs/a b", "--quiet"),
        *(":", "-n", "2", *rank, "rollout", "runs/a b"),
        *(":", "-n", "1", *rank, "trainer", "runs/a b"),
    ]


def test_a_machine_without_mpiexec_is_told_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(world_process.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="pip install mpich"):
        world_command(load(composed("+exp=quickstart")), quiet=False)


def output_of(script, limit_s=20):
    process = WorldProcess([sys.executable, "-c", script], world_environment(CONFIG))
    assert process.wait(limit_s)
    return process, list(process.rest(5))


def test_output_and_exit_code_are_passed_on():
    process, lines = output_of("import sys; print('one'); sys.stderr.write('two\\n'); sys.exit(3)")
    assert process.exit_code == 3
    assert lines == ["one", "two"]


def test_a_process_that_does_not_end_is_killed_and_said_to_be():
    process = WorldProcess([sys.executable, "-c", "import time; time.sleep(60)"], world_environment(CONFIG))
    assert not process.wait(0.2)
    assert not list(process.rest(5))
    assert process.exit_code == -9


def test_an_interrupt_before_the_controller_is_known_ends_the_world():
    process = WorldProcess([sys.executable, "-c", "import time; time.sleep(60)"], world_environment(CONFIG))
    process.interrupt(None)
    assert process.wait(10)
    assert not list(process.rest(5))
    assert process.exit_code == -9


def test_a_wait_for_lines_ends_however_long_a_signal_takes_to_be_answered():
    world = WorldProcess([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ))
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3))
    threading.Timer(20.0, lambda: world._lines.put("woken")).start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert list(world.lines(0.1)) == []
    finally:
        signal.signal(signal.SIGALRM, before)
        world.wait(0)
