"""However a rank fails, the run ends soon, non-zero, naming the rank and what happened; never a silent hang."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sestina.config.load import load
from sestina.controller.world_process import world_environment
from tests.integration.worlds import (
    ROOT,
    finish,
    only_rewards_left,
    pid_of,
    rolling_out,
    small_model,
    train,
    training,
    wait_for,
)
from tests.unit.config.helpers import composed

pytestmark = pytest.mark.mpi
SOON_S = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@pytest.mark.parametrize("role", ["controller", "rollout 1", "trainer 0"])
def test_a_killed_rank_ends_the_run_under_its_name(tmp_path, model, role):
    with training(tmp_path / "run", model, run__steps=50) as (process, run):
        status = wait_for(process, run, rolling_out)
        os.kill(pid_of(status, role), signal.SIGKILL)
        finish(process, run)
    assert run.code not in (0, 2)
    assert run.wall_s < SOON_S
    assert f"{role} (rank" in run.output.splitlines()[-1]
    assert run.output.splitlines()[-1].count(" died") == 1
    assert "run failed with exit code" in run.output


def test_a_rank_that_raises_is_quoted_once(tmp_path, model):
    """The bound on the logprob difference cannot be met: the trainer refuses the first batch."""
    run = train(tmp_path / "run", model, trainer__max_logprob_diff=1e-12)
    assert run.code == 1
    assert run.output.count("Traceback (most recent call last)") == 1
    assert run.output.count("trainer.max_logprob_diff allows 1e-12") == 1
    assert "trainer 0 (rank 4) failed:" in run.output
    assert not list(run.dir.glob("checkpoints/step_*"))


def freeze(pid, process, run):
    """Stop a rank and let the run come to its end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        finish(process, run)
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["rollout 2 (rank 3)", "trainer 0 (rank 4)"])
def test_a_rank_that_hangs_is_noticed(tmp_path, model, role):
    """Every rank waits for a slow reward, so that it is the silence that is noticed."""
    slow = {"reward__path": "tests.integration.rewards:slow", "reward__timeout_s": 60, "algorithm__batch_size": 4}
    with training(tmp_path / "run", model, algorithm__minibatches=1, deadlines__silence_s=4, **slow) as (process, run):
        status = wait_for(process, run, only_rewards_left)
        time.sleep(1)
        freeze(pid_of(status, role), process, run)
    assert run.code == 1, run.output
    assert f"waited 4 s for a sign of life from {role}" in run.output


@pytest.mark.slow
def test_a_controller_that_hangs_is_noticed_by_the_ranks(tmp_path, model):
    with training(tmp_path / "run", model, run__steps=50, deadlines__silence_s=4) as (process, run):
        status = wait_for(process, run, rolling_out)
        freeze(pid_of(status, "controller"), process, run)
    assert run.code == 1, run.output
    assert "a sign of life from the controller" in run.output


def family(process):
    """Return the launcher's descendants: mpiexec, its proxy, the ranks, the reward workers."""
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGKILL]], ids=["ctrl-c twice", "killed"])
def test_no_process_outlives_the_launcher(tmp_path, model, signals):
    with training(tmp_path / "run", model, run__steps=50) as (process, run):
        wait_for(process, run, rolling_out)
        members = family(process)
        for each in signals:
            process.send_signal(each)
            time.sleep(0.3)
        finish(process, run)
        assert len(members) >= 5
        _, alive = psutil.wait_procs(members, timeout=SOON_S)
        for member in alive:
            member.kill()
    assert not alive
    assert run.code != 0


@pytest.mark.slow
def test_a_live_run_holds_its_directory(tmp_path, model):
    with training(tmp_path / "run", model, run__steps=50) as (process, first):
        wait_for(process, first, rolling_out)
        before = (tmp_path / "run/config.yaml").read_bytes()
        second = train(tmp_path / "run", model, run__steps=51)
        assert (tmp_path / "run/config.yaml").read_bytes() == before
    assert second.code == 2
    assert "is held by a live run (pid" in second.output


@pytest.mark.slow
def test_ranks_that_wait_do_not_spin(tmp_path, model):
    """Three instances have nothing to do while a reward is slow; so has everyone else."""
    slow = {"reward__path": "tests.integration.rewards:slow", "reward__timeout_s": 60, "algorithm__batch_size": 4}
    with training(tmp_path / "run", model, algorithm__minibatches=1, **slow) as (process, run):
        status = wait_for(process, run, only_rewards_left)
        time.sleep(2)
        ranks = [psutil.Process(rank.pid) for rank in status.ranks]
        before = [sum(rank.cpu_times()[:2]) for rank in ranks]
        time.sleep(5)
        shares = [(sum(rank.cpu_times()[:2]) - start) / 5 for rank, start in zip(ranks, before, strict=True)]
        process.terminate()
        finish(process, run)
    assert len(shares) == 5
    assert max(shares) < 0.02, shares


def world(*roles, run_dir):
    """Start ranks of these roles directly, as a cluster's launcher would."""
    rank = [sys.executable, "-m", "mpi4py", "-m", "sestina.controller.rank"]
    parts = [["-n", "1", *rank, role, str(run_dir)] for role in roles]
    command = [os.path.join(os.path.dirname(sys.executable), "mpiexec"), *parts[0]]
    for part in parts[1:]:
        command += [":", *part]
    environment = world_environment(load(composed("+exp=quickstart")))
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def configured(tmp_path_factory, model):
    """A run directory with a configuration for three instances and one trainer rank."""
    run = train(tmp_path_factory.mktemp("configured") / "run", model, trainer__max_logprob_diff=1e-12)
    return run.dir


@pytest.mark.slow
def test_a_missing_role_is_named(configured):
    done = world("controller", "rollout", "trainer", run_dir=configured)
    assert done.returncode == 2
    assert "the world has 1 rollout ranks, the configuration asks for 3" in done.stderr + done.stdout


@pytest.mark.slow
def test_a_world_of_one_says_how_it_was_started(configured):
    done = world("controller", run_dir=configured)
    assert done.returncode == 2
    assert "started without mpiexec or srun" in done.stderr + done.stdout
