from dataclasses import replace

from sestina.cluster.layout import layout_of
from sestina.cluster.verdict import judge
from sestina.config.load import load
from sestina.telemetry.failures import Failure, read_failures, write_failure
from sestina.telemetry.status import RankProcess, Status
from tests.unit.cluster.jobs import SLURM
from tests.unit.config.helpers import composed

CONFIG = load(composed(*SLURM))
LAYOUT = layout_of(CONFIG, CONFIG.cluster)
HOSTS = ["n1", "n2", "n3", "n4", "n5"]
STATUS = Status(
    name="run",
    pid=1,
    state="running",
    completed=False,
    phase="rollout: 3 of 32 responses left",
    step=1,
    num_steps=3,
    accuracy=None,
    eta_s=None,
    rows=(),
    ranks=tuple(RankProcess(name=LAYOUT.name(rank), host=host, pid=9) for rank, host in enumerate(HOSTS)),
    started_at=0.0,
    updated_at=0.0,
)
KILLED = [
    "srun: error: n3: task 1: Killed",
    "srun: launch/slurm: _step_signal: Terminating StepId=10.0",
    "srun: error: n1: task 0: Terminated",
]


def failure(rank, **changes):
    given = {"rank": rank, "name": LAYOUT.name(rank), "host": HOSTS[rank], "exit_code": 1, "why": "why", "at": 5.0}
    return Failure(**{**given, **changes})


def judged(status=STATUS, failures=(), said=(), *, code=137, asked=False, moved=True, layout=LAYOUT):
    return judge(status, failures, said, layout, exit_code=code, asked=asked, moved=moved)


def test_a_finished_run_is_never_queued_again():
    verdict = judged(replace(STATUS, state="finished", phase="finished: 3 steps"), code=0, asked=True)
    assert (verdict.again, verdict.exit_code, verdict.said) == (False, 0, "finished: 3 steps")


def test_a_run_that_has_stopped_is_queued_again_whoever_was_told_to_stop():
    """SLURM tells the batch script, or at a preemption with a grace time the ranks alone."""
    stopped = replace(STATUS, state="stopped", phase="stopped after step 1")
    assert judged(stopped, code=0, asked=True).again
    assert judged(stopped, code=0).again


def test_a_job_in_which_no_step_fits_is_not_queued_for_ever():
    verdict = judged(replace(STATUS, state="stopped"), code=0, asked=True, moved=False)
    assert (verdict.again, verdict.exit_code) == (False, 1)
    assert "raise cluster.limit_min" in verdict.said


def test_a_killed_rank_is_found_by_its_node_and_its_task_within_the_component():
    verdict = judged(said=KILLED)
    assert (verdict.exit_code, verdict.said) == (137, "rollout 1 (rank 2) on n3 died: Killed")


def test_a_rank_that_left_with_a_code_of_its_own_gives_it_to_the_job():
    verdict = judged(said=["srun: error: n5: task 0: Exited with exit code 7"], code=143)
    assert (verdict.exit_code, verdict.said) == (7, "trainer 0 (rank 4) on n5 died: Exited with exit code 7")


def test_what_others_say_of_a_killed_rank_comes_after_its_death():
    assert judged(failures=[failure(0)], said=KILLED).said == "rollout 1 (rank 2) on n3 died: Killed"


def test_the_first_failure_counts():
    verdict = judged(
        failures=[failure(4, exit_code=2, why="no such file"), failure(0)], said=["srun: error: n5: task 0: Killed"]
    )
    assert (verdict.exit_code, verdict.said) == (2, "trainer 0 (rank 4) on n5 failed: no such file")


def test_a_rank_that_ended_the_world_is_not_mistaken_for_one_of_those_it_ended():
    said = ["srun: Job step aborted: Waiting up to 7 seconds for job step to finish.", *KILLED]
    assert judged(failures=[failure(0)], said=said).said == "controller (rank 0) on n1 failed: why"


def test_a_job_that_slurm_ended_blames_no_rank():
    said = ["srun: forcing job termination", "srun: Job step aborted: Waiting up to 7 seconds.", *KILLED]
    assert judged(said=said).said == "SLURM has ended the job: cancelled, requeued, or out of time"


def test_what_srun_does_about_a_killed_rank_is_not_mistaken_for_the_cause():
    assert judged(said=[*KILLED, "srun: forcing job termination"]).said == "rollout 1 (rank 2) on n3 died: Killed"


def test_a_rank_that_was_killed_before_all_had_met_is_named_by_its_node():
    assert judged(None, said=KILLED).said == "task 1 on n3 died: Killed"
    assert judged(None, failures=[failure(0)], said=KILLED[2:]).said == "controller (rank 0) on n1 failed: why"


def test_ranks_that_left_without_a_word():
    assert judged(None, code=0).exit_code == 1
    assert judged(code=3).said == (
        "the ranks have left in step 2, waiting for rollout: 3 of 32 responses left; srun's exit code is 3"
    )


def test_failures_come_back_in_order_and_half_written_ones_do_not(tmp_path):
    folder = tmp_path / "failures"
    assert read_failures(folder) == []
    write_failure(folder, failure(1, at=9.0))
    write_failure(folder, failure(2, at=4.0))
    (folder / "3.json").write_text('{"rank"')
    assert [found.rank for found in read_failures(folder)] == [2, 1]
