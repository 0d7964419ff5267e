"""On a real SLURM of virtual nodes: whatever ends a job, the weights are those of a run that nothing has disturbed."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.slurm_jobs import (
    STEPS,
    Job,
    command_line,
    preempt,
    refused,
    run,
    submitted,
    until,
)
from tests.integration.worlds import ROOT, SLOWLY, halfway, only_rewards_left, rolling_out, slowed

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.usefixtures("cluster")]
SOON_S = 15


@pytest.fixture
def model(slurm_model):
    return slurm_model


def under_way(status):
    return status.step >= 1


def assert_finished(job, straight):
    assert job.wait() == "COMPLETED", job.log
    assert "finished: 3 steps" in job.log
    assert job.metric("rollout/tokens_crc32") == straight.metric("rollout/tokens_crc32")
    assert job.model() == straight.model(STEPS)


def test_sbatch_run_sh_gives_the_weights_of_a_run_on_one_machine(tmp_path, model, straight, measured):
    printed = tmp_path / "submit.log"
    words = command_line(tmp_path / "run", model, {})
    done = run("sbatch", "--parsable", f"--output={printed}", "slurm/run.sh", *words)
    submission = Job(number=int(done.stdout), dir=tmp_path)
    assert submission.wait() == "COMPLETED", printed.read_text()
    job = Job(number=int(re.search(r"^job (\d+):", printed.read_text(), re.MULTILINE)[1]), dir=tmp_path / "run")
    assert f"log {job.dir}/slurm/{job.number}.log" in printed.read_text()
    assert_finished(job, straight)
    assert job.shown("Restarts") == "0"
    measured("start of the job to first dispatched request", job.first_dispatch_s(), 5)


@pytest.mark.parametrize("role", ["rollout 1 (rank 2)", "trainer 0 (rank 4)", "controller (rank 0)"])
def test_a_killed_rank_ends_the_job_under_its_name_and_the_same_command_continues(
    tmp_path, model, straight, role, measured
):
    job = submitted(tmp_path / "run", model, run__steps=50)
    seconds = job.kill(role)
    measured(f"{role} killed: until the job was over", seconds, SOON_S)
    assert seconds < SOON_S
    assert job.state == "FAILED"
    assert re.search(rf"start 1: {re.escape(role)} on n\d died: Killed \(log: .*{job.number}.log\)$", job.log.rstrip())
    assert_finished(submitted(tmp_path / "run", model), straight)


@pytest.mark.parametrize("role", ["rollout 1 (rank 2)", "trainer 0 (rank 4)"])
def test_a_rank_that_hangs_is_noticed(tmp_path, model, role, measured):
    slow = {"reward__path": "tests.integration.rewards:slow", "reward__timeout_s": 60, "algorithm__batch_size": 4}
    job = submitted(tmp_path / "run", model, algorithm__minibatches=1, deadlines__silence_s=4, **slow)
    job.wait_for(only_rewards_left)
    time.sleep(1)
    status = job.wait_for(lambda status: True)
    pid = next(rank.pid for rank in status.ranks if rank.name == role)
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    assert job.wait() == "FAILED"
    seconds = time.monotonic() - start
    measured(f"{role} hung, silence_s 4: until the job was over", seconds, SOON_S)
    assert seconds < SOON_S
    assert f"controller (rank 0) on n1 failed: waited 4 s for a sign of life from {role}" in job.log
    assert not Path(f"/proc/{pid}").exists()


def test_a_requeue_in_the_middle_of_a_step_continues(tmp_path, model, straight):
    job = submitted(tmp_path / "run", model)
    with slowed(job.dir):
        job.wait_for(rolling_out)
        assert run("scontrol", "requeue", str(job.number)).returncode == 0
    assert_finished(job, straight)
    assert job.shown("Restarts") == "1"


def test_a_requeue_after_a_kill_where_ranks_share_a_node(tmp_path, model, straight):
    """The second start has the first one's number, and finds what that one's MPI left in shared memory."""
    job = submitted(tmp_path / "run", model, cluster__layout="single")
    assert job.kill("rollout 1 (rank 2)") < SOON_S
    assert "rollout 1 (rank 2) on n1 died: Killed" in job.log.splitlines()[-1]
    assert run("scontrol", "requeue", str(job.number)).returncode == 0
    until(lambda: "start 2: finished: 3 steps" in job.log, lambda: f"the second start:\n{job.log}")
    assert_finished(job, straight)


def test_a_job_whose_time_is_nearly_up_saves_and_queues_again(tmp_path, model, straight, measured):
    job = submitted(tmp_path / "run", model)
    with slowed(job.dir):
        job.wait_for(rolling_out)
        assert run("scancel", "--batch", "--signal=USR1", str(job.number)).returncode == 0
    start = time.monotonic()
    until(lambda: job.state != "RUNNING", "the job to leave")
    measured("asked to stop by USR1: until the run had left", time.monotonic() - start, 60)
    assert_finished(job, straight)
    assert job.shown("Restarts") == "1"
    assert f"job {job.number} is queued again" in job.log
    assert job.log.count("finished: 3 steps") == 1


def test_a_stop_in_the_middle_of_a_rollout_keeps_its_tokens(tmp_path, model, straight):
    job = submitted(tmp_path / "run", model, **SLOWLY)
    with slowed(job.dir):
        job.wait_for(lambda status: status.step == 1 and halfway(status.phase))
        assert run("scancel", "--batch", "--signal=USR1", str(job.number)).returncode == 0
    assert_finished(job, straight)
    [kept] = map(int, re.findall(r"(\d+) tokens of step 2 are kept", job.log))
    assert kept > 0
    assert job.metric("rollout/restored_tokens") == [0, kept, 0]


def test_a_preempted_job_saves_and_goes_on_where_it_was(tmp_path, model, straight, measured):
    """SLURM signals every process of the job, reward workers too; the partition gives them a minute."""
    job = submitted(tmp_path / "run", model, cluster__partition="low", **SLOWLY)
    with slowed(job.dir):
        job.wait_for(lambda status: status.step == 1 and halfway(status.phase))
        start = time.monotonic()
        other = preempt(job)
    measured("preempted: until another job had the nodes", time.monotonic() - start, 60)
    assert other.wait() == "COMPLETED"
    assert_finished(job, straight)
    assert job.shown("Restarts") == "1"
    [kept] = map(int, re.findall(r"(\d+) tokens of step 2 are kept", job.log))
    assert job.metric("rollout/restored_tokens") == [0, kept, 0]
    assert job.metric("rollout/reward_failures") == [0, 0, 0]


def test_a_weight_address_that_is_not_the_nodes(tmp_path, model, measured):
    job = submitted(tmp_path / "run", model, weights__host="203.0.113.7")
    start = time.monotonic()
    assert job.wait(60) == "FAILED"
    measured("a rendezvous that cannot be opened: until it was said", time.monotonic() - start, 60)
    assert job.shown("ExitCode") == "2:0"
    said = r"start 1: trainer 0 \(rank 4\) on n\d failed: weights.host: this node cannot be reached at '203.0.113.7'"
    assert re.search(said, job.log.splitlines()[-1])
    assert job.log.splitlines()[-1].endswith(f"(log: {job.dir}/slurm/{job.number}.log)")


def test_a_cancelled_job_stays_cancelled(tmp_path, model):
    job = submitted(tmp_path / "run", model, run__steps=50)
    job.wait_for(rolling_out)
    run("scancel", "--full", "--signal=TERM", str(job.number))
    run("scancel", str(job.number))
    assert job.wait() == "CANCELLED"
    assert "is queued again" not in job.log


@pytest.mark.parametrize(("layout", "nodes"), [("het-shared", 4), ("single", 1)])
def test_other_layouts(tmp_path, model, straight, layout, nodes):
    job = submitted(tmp_path / "run", model, cluster__layout=layout)
    status = job.wait_for(under_way)
    assert len({rank.host for rank in status.ranks}) == nodes
    assert_finished(job, straight)


def test_ranks_that_share_nodes(tmp_path, model, straight):
    job = submitted(tmp_path / "run", model, cluster__cpu_ranks_per_node=2)
    hosts = [rank.host for rank in job.wait_for(under_way).ranks if rank.name.startswith("rollout")]
    assert hosts[0] == hosts[1] != hosts[2]
    assert_finished(job, straight)


def test_another_pmi_than_the_mpi_speaks_is_said(tmp_path, model, measured):
    """Without one, every rank is a world of its own."""
    held = submitted(tmp_path / "run", model, cluster__options="[--hold]")
    run("scancel", str(held.number))
    script = tmp_path / "run/slurm/job.sh"
    text = script.read_text()
    script.write_text(text.replace("--mpi=pmi2", "--mpi=none").replace("#SBATCH --hold\n", ""))
    start = time.monotonic()
    job = Job(number=int(run("sbatch", "--parsable", str(script)).stdout), dir=tmp_path / "run")
    assert job.wait(60) == "FAILED"
    measured("a wrong flavour of PMI: until it was said", time.monotonic() - start, 60)
    assert job.shown("ExitCode") == "2:0"
    assert "cluster.mpi: srun started 5 ranks, MPI sees a world of 1" in job.log
    assert "MPICH takes 'pmi2'" in job.log.splitlines()[-1]


def test_a_model_that_vanishes_before_the_job_starts(tmp_path, model):
    copy = shutil.copytree(model, tmp_path / "model")
    job = submitted(tmp_path / "run", copy, cluster__options="[--hold]")
    shutil.rmtree(copy)
    for number in range(3):
        run("scontrol", "release", str(job.number + number))
    assert job.wait(60) == "FAILED"
    assert job.shown("ExitCode") == "2:0"
    assert re.search(r"\(rank \d\) on n\d failed: .*config.json: no such file.*\(log: ", job.log.splitlines()[-1])


def test_what_cannot_be_submitted(tmp_path, model):
    assert "config.json: no such file" in refused(tmp_path / "run", tmp_path / "nowhere")
    few = refused(tmp_path / "run", model, rollout__num_instances=9)
    assert "'het' needs 11 nodes (controller 1, rollout 9, trainer 1), the default partition has 6" in few
    assert "'gone' is no partition of this cluster; it has low, main" in refused(
        tmp_path / "run", model, cluster__partition="gone"
    )
    assert not (tmp_path / "run").exists()


def test_a_queued_run_keeps_its_directory(tmp_path, model):
    job = submitted(tmp_path / "run", model, cluster__options="[--hold]")
    assert f"has a job already: {job.number}, PENDING" in refused(tmp_path / "run", model)
    run("scancel", str(job.number))
    job.wait()


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "no experiment is named; add +exp=NAME"), (["+exp=quickstart_slrm"], "did you mean 'quickstart_slurm'?")],
)
def test_run_sh_without_an_experiment(tmp_path, words, said):
    printed = tmp_path / "submit.log"
    number = run("sbatch", "--parsable", f"--output={printed}", "slurm/run.sh", *words).stdout
    job = Job(number=int(number), dir=tmp_path)
    assert job.wait(60) == "FAILED"
    assert job.shown("ExitCode") == "2:0"
    assert said in printed.read_text()


def test_a_cluster_that_cannot_start_leaves_nothing_running():
    """Its ports are those of the cluster that is up."""
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
    command = [str(ROOT / "slurm/local.sh"), "up", "-d", str(folder), "-n", "1", "-i", "42"]
    up = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert up.returncode != 0
    assert "slurmctld did not start" in up.stderr
    commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(folder) in command]
    shutil.rmtree(folder)
