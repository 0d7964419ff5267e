"""SGLang servers in SLURM jobs: they serve, they are lost and replaced, they cannot be started."""

import math
import re
import time

import psutil
import pytest

from tests.integration.sglang_bench import PYTHON
from tests.integration.slurm_jobs import BASE, STEPS, preempt, submitted
from tests.integration.worlds import SLOWLY, halfway, pid_of, slowed, train

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.sglang,
    pytest.mark.mpi,
    pytest.mark.usefixtures("cluster"),
    pytest.mark.timeout(600),
]
TWO = {"rollout__num_instances": 2, "rollout__engine__max_step_tokens": None}
START_S = 240
SAID_S = 60


def on_servers(folder, model, **changes):
    engine = {"rollout__engine__python": PYTHON, "deadlines__silence_s": 30, "deadlines__start_s": START_S}
    return submitted(folder, model, base=(*BASE, "rollout.engine=sglang"), **TWO, **engine | changes)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory, slurm_model):
    """The same on this machine, with embedded engines."""
    return train(
        tmp_path_factory.mktemp("embedded") / "run", slurm_model, BASE, run__steps=STEPS, run__checkpoint_every=1, **TWO
    )


def assert_equal_tokens(job, embedded):
    assert job.wait(START_S) == "COMPLETED", job.log
    assert job.metric("rollout/tokens_crc32") == embedded.metric("rollout/tokens_crc32")
    assert not any(map(math.isnan, job.metric("rollout/raw_reward")))
    assert job.metric("rollout/raw_reward") == embedded.metric("rollout/raw_reward")
    assert max(job.metric("train/train_rollout_logprob_abs_diff")) < 1e-5


def test_a_job_on_servers_survives_the_loss_of_one(tmp_path, slurm_model, embedded):
    job = on_servers(tmp_path / "run", slurm_model)
    job.limit_s = START_S
    with slowed(job.dir):
        status = job.wait_for(lambda status: status.step == 1 and halfway(status.phase))
        [server] = [child for child in psutil.Process(pid_of(status, "rollout 1")).children() if serves(child)]
        server.kill()
    assert_equal_tokens(job, embedded)
    assert job.shown("Restarts") == "0"
    assert max(job.metric("perf/engine_restarts")) == 1
    versions = {row["version"] for row in chunk_versions(job)}
    assert versions == set(range(STEPS))


def test_a_preempted_job_on_servers_goes_on_where_it_was(tmp_path, slurm_model, embedded):
    """SIGTERM reaches the servers too, while they still have to give back what they run."""
    job = on_servers(tmp_path / "run", slurm_model, cluster__partition="low", **SLOWLY)
    job.limit_s = START_S
    with slowed(job.dir, run_s=0.1):  # so many calls are slow by themselves
        job.wait_for(lambda status: status.step == 1 and halfway(status.phase))
        preempt(job)
    assert_equal_tokens(job, embedded)
    assert job.shown("Restarts") == "1"
    [kept] = map(int, re.findall(r"(\d+) tokens of step 2 are kept", job.log))
    assert job.metric("rollout/restored_tokens") == [0, kept, 0]
    assert max(job.metric("perf/engine_restarts")) == 0


def chunk_versions(job):
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pq.read_table(job.dir / "traces/chunks").to_pylist()


def serves(process):
    return "sestina.sglang_plugin.serve" in process.cmdline()


def executable(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def another_version(tmp_path):
    """SGLang's Python, where the SGLang that is found first says it is of another version."""
    metadata = tmp_path / "other/sglang-0.4.1.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.4.1\n")
    python = executable(tmp_path / "python", f'PYTHONPATH=$PYTHONPATH:{tmp_path}/other exec {PYTHON} "$@"')
    return {"rollout__engine__python": python}, "has SGLang 0.4.1; this version of Sestina needs SGLang 0.5"


@pytest.fixture
def never_ready(tmp_path):
    python = executable(tmp_path / "python", "exec sleep 600")
    said = r"waited 5 s \(rollout.engine.start_s\) for SGLang to be ready"
    return {"rollout__engine__python": python, "rollout__engine__start_s": 5}, said


@pytest.mark.parametrize("case", ["another_version", "never_ready"])
def test_a_server_that_cannot_serve_is_said(tmp_path, slurm_model, case, request, measured):
    changes, said = request.getfixturevalue(case)
    job = on_servers(tmp_path / "run", slurm_model, **changes)
    start = time.monotonic()
    assert job.wait(START_S) == "FAILED"
    measured(f"an SGLang server that cannot serve ({case}): until it was said", time.monotonic() - start, SAID_S)
    [verdict] = re.findall(r"^job \d+, start 1: (.*\n(?:.*\n)*)", job.log, re.MULTILINE)
    assert re.match(r"rollout \d \(rank \d\) on n\d failed: ", verdict)
    assert re.search(said, verdict)
    assert f"the end of {job.dir}/logs/sglang_" in verdict
    assert verdict.rstrip().endswith(f"(log: {job.dir}/slurm/{job.number}.log)")
