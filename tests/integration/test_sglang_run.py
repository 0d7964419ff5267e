"""Whole runs on SGLang servers: the tokens and weights of the embedded engine, even when a server is killed."""

import psutil
import pytest

from tests.integration.sglang_bench import PYTHON
from tests.integration.worlds import BASE, finish, pid_of, small_model, train, training, wait_for

pytestmark = [pytest.mark.sglang, pytest.mark.mpi, pytest.mark.timeout(600)]
TWO = {"rollout__num_instances": 2, "rollout__engine__max_step_tokens": None}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def embedded(tmp_path_factory, model):
    return train(tmp_path_factory.mktemp("embedded") / "run", model, rollout__num_instances=2)


def test_a_run_on_servers_is_the_run_on_embedded_engines(tmp_path, model, embedded):
    """One server is killed while it decodes; its chunks are asked for again."""
    base = (*BASE, "rollout.engine=sglang")
    with training(tmp_path / "run", model, base, rollout__engine__python=PYTHON, **TWO) as (process, run):
        status = wait_for(process, run, lambda status: status.phase.startswith("rollout"), limit_s=240)
        [server] = [child for child in psutil.Process(pid_of(status, "rollout 1")).children() if serves(child)]
        family = psutil.Process(process.pid).children(recursive=True)
        server.kill()
        finish(process, run)
    assert run.code == 0, run.output
    assert max(run.metric("perf/engine_restarts")) == 1
    assert run.metric("rollout/tokens_crc32") == embedded.metric("rollout/tokens_crc32")
    assert max(run.metric("train/train_rollout_logprob_abs_diff")) < 1e-5
    assert len(list((run.dir / "logs").glob("sglang_*.log"))) == 2
    assert not psutil.wait_procs(family, timeout=10)[1]


def serves(process):
    return "sestina.sglang_plugin.serve" in process.cmdline()


def test_a_run_on_a_server_that_drafts_is_the_same_run(tmp_path, model, embedded):
    """Weights of two steps, chunks of 16 tokens; what was drafted is in the metrics."""
    drafts = {"draft__source": "self", "draft__length": "fixed", "draft__guard": "false", "draft__min_token_prob": 0}
    one = {**TWO, "rollout__num_instances": 1, "rollout__engine__python": PYTHON}
    run = train(tmp_path / "run", model, (*BASE, "rollout.engine=sglang"), **one, **drafts)
    assert run.code == 0, run.output
    assert run.metric("rollout/tokens_crc32") == embedded.metric("rollout/tokens_crc32")
    assert max(run.metric("train/train_rollout_logprob_abs_diff")) < 1e-5
    assert min(run.metric("spec/drafted_tokens")) > 0
    assert max(run.metric("spec/accepted_tokens")) > 0
    assert max(run.metric("spec/acceptance_length")) > 1
