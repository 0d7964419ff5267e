"""Whole runs on SGLang servers: the tokens and weights of the embedded engine, even when a server is killed."""

import itertools

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sestina.config.load import load
from sestina.controller.feed import Feed
from sestina.controller.preflight import prepare
from sestina.controller.stream_state import read_stream
from sestina.core.records import ChunkRequest
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.models.weights import read_weights
from sestina.telemetry.lengths import COLUMNS
from sestina.telemetry.traces import read_requests
from tests.integration.sglang_bench import PYTHON
from tests.integration.test_async import check
from tests.integration.worlds import BASE, arguments, finish, pid_of, slowed, small_model, train, training, wait_for
from tests.unit.config.helpers import composed
from tests.unit.rollout.helpers import finish as decode
from tests.unit.rollout.helpers import make_engine

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


STEPS, ETA, TOKENS = 6, 3, 480
ASYNC = {
    **TWO,
    "run__mode": "async",
    "run__steps": STEPS,
    "run__checkpoint_every": 1,
    "run__keep_checkpoints": 9,
    "async__max_staleness": ETA,
    "algorithm__batch_size": 8,
    "algorithm__minibatches": 1,
    "rollout__max_new_tokens": TOKENS,
    "rollout__chunk_tokens": 60,
    "rollout__engine__max_running": 16,
    "rollout__engine__kv_capacity_tokens": 16384,
    "rollout__engine__python": PYTHON,
    "trainer__max_micro_batch_tokens": 2048,
    "deadlines__start_s": 240,
}
"""Long responses and small batches: weights come several times while a response is under way."""


def test_asynchronous_steps_on_servers_have_every_token_of_the_version_that_it_names(tmp_path, model):
    """What the checkpoints keep of open groups is drawn again by an embedded engine, span by span."""
    base = (*BASE, "algorithm=ppo", "rollout.engine=sglang")
    overrides = {key.replace("__", "."): value for key, value in ASYNC.items()}
    config = load(composed(*arguments(tmp_path / "run", model, overrides, base)))
    redrawn = Redrawn(config, tmp_path / "run")
    lengths = redrawn.record(tmp_path / "lengths.parquet")
    with training(tmp_path / "run", model, base, **ASYNC, rollout__forced_lengths_from=lengths) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1, limit_s=300)
        with slowed(run.dir, run_s=0.03):
            finish(process, run)
    assert run.code == 0, run.output
    check(run, STEPS, eta=ETA, batch_groups=2)
    assert sum(run.metric("async/interruptions")) > 0
    assert {row["response_tokens"] for row in read_requests(run.dir).to_pylist()} == {TOKENS - 9}
    checkpoints = [run.dir / f"checkpoints/step_{step:06d}" for step in range(1, STEPS)]
    mixed = [sample for checkpoint in checkpoints for sample in read_stream(checkpoint).samples if is_mixed(sample)]
    assert mixed, "no interrupted response is in a checkpoint"
    for sample in mixed[:: 1 + len(mixed) // 6]:
        redrawn.check(sample)


AHEAD = {
    "run__mode": "pipelined",
    "run__steps": 4,
    "rollout__num_instances": 2,
    "data__num_prompts": 16,
}
"""Two steps to an epoch: from the third on there is history."""


def test_pipelined_steps_on_servers_are_those_of_embedded_engines(tmp_path, model):
    """Ranks keep the next version and give it to their servers before the first chunk that asks for it."""
    ppo = (*BASE, "algorithm=ppo")
    served = (*ppo, "rollout.engine=sglang")
    ours = train(tmp_path / "embedded", model, ppo, **AHEAD)
    servers = AHEAD | TWO | {"rollout__engine__python": PYTHON, "deadlines__start_s": 240}
    run = train(tmp_path / "served", model, served, **servers, rollout__scheduler="histopipe")
    assert (ours.code, run.code) == (0, 0), ours.output + run.output
    assert run.metric("async/staleness_max") == ours.metric("async/staleness_max") == [0, 1, 1, 1]
    assert max(run.metric("train/train_rollout_logprob_abs_diff")) < 1e-5
    rows = [row for row in read_requests(run.dir).to_pylist() if not row["evaluation"]]
    assert all(row["first_version"] == max(0, row["step"] - 2) for row in rows)
    if not any(run.metric("rollout/migrated_inter_step")):
        assert run.metric("rollout/tokens_crc32") == ours.metric("rollout/tokens_crc32")
    else:
        assert run.metric("rollout/tokens_crc32")[0] == ours.metric("rollout/tokens_crc32")[0]


def is_mixed(sample):
    return any(len({span.version for span in part.spans}) > 1 for part in sample.parts)


class Redrawn:
    """Draws responses of a run again, with the weights that its checkpoints keep."""

    def __init__(self, config, folder):
        self.config, self.folder = config, folder
        self.feed = Feed(config, prepare(config))
        self.shape = read_shape(config.model.path)

    def record(self, path):
        """Write lengths that every response of the run is to have, and return where."""
        rows = [
            (group // 2 + 1, group, sample, len(prompt.tokens), TOKENS - 9, "stop")
            for group in range(2 * STEPS)
            for _, prompt in self.feed.group(group).groups
            for sample in range(4)
        ]
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table({name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}), path)
        return path

    def check(self, sample):
        [(_, prompt)] = self.feed.group(sample.id.group).groups
        known = np.zeros(0, np.int32)
        for part in sample.parts:
            assert sum(span.num_tokens for span in part.spans) == len(part.tokens)
            ends = [0, *itertools.accumulate(span.num_tokens for span in part.spans)]
            for span, (a, b) in zip(part.spans, itertools.pairwise(ends), strict=True):
                if a < b:
                    again = self.draw(sample.id, prompt.tokens, known, span)
                    np.testing.assert_array_equal(again.tokens, part.tokens[a:b])
                    np.testing.assert_allclose(again.logprobs, part.logprobs[a:b], atol=1e-4)
                    known = np.concatenate([known, part.tokens[a:b]])

    def draw(self, id, prompt, known, span):
        rollout, path = self.config.rollout, self.folder / f"checkpoints/step_{span.version:06d}/model"
        engine = make_engine(
            self.shape,
            read_weights(path if span.version else self.config.model.path, self.shape),
            stop_token=Tokenizer(self.config.model.path, model_vocab_size=self.shape.vocab_size).eos_id,
            seed=self.config.seed,
            max_context_tokens=512,
        )
        request = ChunkRequest(
            id=id,
            prompt=prompt,
            generated=known,
            max_tokens=span.num_tokens,
            max_new_tokens=rollout.max_new_tokens,
            temperature=rollout.temperature,
            stop_at=TOKENS - 9,
        )
        return decode(engine, [request])[id]


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
    assert run.metric("spec/self/drafted_tokens") == run.metric("spec/drafted_tokens")
    assert run.metric("spec/self/accepted_tokens") == run.metric("spec/accepted_tokens")
    assert min(run.metric("spec/steps/on")) > 0
