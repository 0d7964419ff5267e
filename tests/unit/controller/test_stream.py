"""The stream of asynchronous training, with real engines: staleness, spans, tokens and groups, killed or not."""

import asyncio
import random
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from sestina.config.load import load
from sestina.controller.feed import Feed
from sestina.controller.materials import Materials
from sestina.controller.recorded import RecordedLengths
from sestina.controller.stop import StopRequest
from sestina.controller.stream import Stream
from sestina.controller.stream_state import read_stream, write_stream
from sestina.core.errors import EngineError, RunDirError, RunError
from sestina.data.prompt import Prompt
from sestina.telemetry.journal import Journal
from tests.conftest import lively_weights, make_shape
from tests.unit.config.helpers import changed
from tests.unit.controller.local import LocalRanks, make_driver

SHAPE = make_shape()
WEIGHTS = [lively_weights(SHAPE, seed=seed) for seed in range(3)]
STEPS = 5


def configured(*changes):
    return load(
        changed(
            "run.mode=async", f"run.steps={STEPS}", "algorithm.batch_size=4", "algorithm.group_size=2",
            "algorithm.minibatches=1", "rollout.max_new_tokens=24", *changes, argv=("+exp=quickstart",),
        )
    )  # fmt: skip


def make_feed(config):
    generator = np.random.default_rng(4)
    prompts = [
        Prompt(id=str(n), text=str(n), tokens=generator.integers(2, 61, 3 + n % 20).astype(np.int32), label=n, meta={})
        for n in range(30)
    ]
    return Feed(
        config,
        Materials(
            shape=None,
            tokenizer=None,
            prompts=prompts,
            eval_prompts=[],
            lengths=RecordedLengths(),
            forced=RecordedLengths(),
        ),
    )


class Life:
    """One process of a run: it trains from a checkpoint on until it has taken its steps, or is killed."""

    def __init__(self, config, folder, seed, ahead=0):
        """`ahead`: versions by which the instances' weights are ahead of what the trainer believes them to be."""
        self.config, self.folder, self.random, self.ahead = config, folder, random.Random(seed), ahead
        self.feed = make_feed(config)
        self.batches, self.saved = {}, []
        self.metrics = []

    async def live(self, *, kill_after=None):
        """Take steps; returns whether all are taken. Publishing takes a while, in which the instances go on."""
        with closing(Journal(self.folder / "journal.jsonl")) as self.journal:
            return await self._live(kill_after)

    async def _live(self, kill_after):
        async with asyncio.TaskGroup() as tasks:
            step = self._load()
            ranks = LocalRanks(SHAPE, WEIGHTS[step % 3], step + self.ahead)
            driver = make_driver(ranks, self.journal, tasks, step)
            stream = Stream(self.config, self.feed, driver, StopRequest())
            if step:
                stream.restore(read_stream(self.folder / f"{step}"))
            pump = tasks.create_task(self._pump(ranks))
            run = tasks.create_task(self._train(stream, driver, ranks, step))
            if kill_after is not None:
                await self._turns(kill_after)
                run.cancel()
            await asyncio.wait([run])
            pump.cancel()
            driver.abandon()
            if not run.cancelled() and run.exception() is None:
                assert not stream._groups or self.config.async_.overdue == "drop"
        return not run.cancelled()

    async def _train(self, stream, driver, ranks, step):
        while step < STEPS:
            samples = await stream.roll_out(step + 1)
            self.batches[step + 1] = [(s.id, s.tokens.tolist(), s.spans) for s in samples]
            self.metrics.append(stream.metrics())
            await self._turns(self.random.randrange(60))
            step += 1
            driver.version = step
            await self._turns(self.random.randrange(10))
            ranks.load(step, WEIGHTS[step % 3])
            stream.published(step)
            (self.folder / f"{step}").mkdir(exist_ok=True)
            write_stream(self.folder / f"{step}", stream.state())
            self.saved.append((step, self.feed.state()))

    def _load(self):
        if not self.saved:
            self.feed = make_feed(self.config)
            return 0
        step, state = self.saved[-1]
        self.feed.restore(state, self.folder)
        return step

    async def _pump(self, ranks):
        while True:
            ranks.step(self.random.randrange(2))
            await asyncio.sleep(0)

    async def _turns(self, count):
        for _ in range(count):
            await asyncio.sleep(0)


def check(life, eta):
    """No group is trained on twice, none is left out; every sample is whole and within the bound."""
    groups = [id.group for batch in life.batches.values() for id, *_ in batch]
    assert set(Counter(groups).values()) == {2}
    assert list(life.batches) == list(range(1, STEPS + 1))
    for step, batch in life.batches.items():
        for _, tokens, spans in batch:
            assert sum(span.num_tokens for span in spans) == len(tokens) > 0
            versions = [span.version for span in spans]
            assert versions == sorted(versions)
            assert 0 <= step - 1 - versions[0] <= eta
            assert versions[-1] <= step - 1
    return sorted(set(groups))


@pytest.mark.parametrize("eta", [0, 1, 3])
def test_batches_are_in_time_and_nothing_is_left_out(tmp_path, eta):
    life = Life(configured(f"async.max_staleness={eta}"), tmp_path, seed=eta)
    assert asyncio.run(life.live())
    assert check(life, eta) == list(range(2 * STEPS))
    mixed = sum(len({span.version for span in spans}) > 1 for batch in life.batches.values() for *_, spans in batch)
    assert bool(mixed) is (eta > 0)
    last = life.metrics[-1]
    assert last["async/tokens_generated"] == last["async/tokens_trained"] + last["async/tokens_under_way"]
    assert max(line["async/staleness_max"] for line in life.metrics) == (eta if eta < 2 else pytest.approx(eta, abs=2))


@pytest.mark.parametrize("seed", range(10))
def test_a_run_killed_at_any_moment_goes_on_from_its_checkpoint(tmp_path, seed):
    """Killed twice; the checkpoint after the kill is the last one, whatever has been generated since."""
    life = Life(configured("async.max_staleness=2"), tmp_path, seed)
    moments = random.Random(seed)
    for _ in range(2):
        if asyncio.run(life.live(kill_after=moments.randrange(20, 400))):
            break
    else:
        assert asyncio.run(life.live())
    assert check(life, 2) == list(range(2 * STEPS))


def test_a_group_goes_on_from_the_tokens_that_the_checkpoint_keeps(tmp_path):
    life = Life(configured("async.max_staleness=3"), tmp_path, seed=1)
    asyncio.run(life.live(kill_after=260))
    states = {step: read_stream(tmp_path / f"{step}") for step, _ in life.saved}
    step = max(step for step in states if any(sample.outcome is None for sample in states[step].samples))
    state = states[step]
    life.saved = [(saved, feed) for saved, feed in life.saved if saved <= step]
    begun = {sample.id: np.concatenate([part.tokens for part in sample.parts]).tolist() for sample in state.samples}
    assert asyncio.run(life.live())
    trained = {id: tokens for batch in life.batches.values() for id, tokens, _ in batch}
    assert begun
    assert all(trained[id][: len(tokens)] == tokens for id, tokens in begun.items())
    assert [group for group, _ in state.groups] == sorted(group for group, _ in state.groups)


def test_what_grows_too_old_is_dropped_and_counted(tmp_path):
    life = Life(configured("async.max_staleness=1", "async.overdue=drop"), tmp_path, seed=3)
    life._turns = lambda count: asyncio.sleep(0)  # a trainer faster than any group
    assert asyncio.run(life.live())
    check(life, 1)
    last = life.metrics[-1]
    assert last["async/groups_dropped"] > 0
    assert last["async/tokens_dropped"] > 0
    assert last["async/selection_bias"] > 0, "what was dropped counts as generated"
    assert 0 <= last["async/difficulty_bias"] <= 1


def test_groups_that_teach_nothing_are_replaced(tmp_path):
    config = configured(
        "algorithm={kind: dapo, batch_size: 4, group_size: 2, minibatches: 1, clip_low: 0.2, clip_high: 0.28, "
        "loss_mean: token, kl_coefficient: 0.0, proximal: behaviour, behaviour_weight_cap: 5.0, "
        "dynamic_sampling: true, overlong_tokens: 0, overlong_penalty: 0.0}"
    )
    life = Life(config, tmp_path, seed=5)
    assert asyncio.run(life.live())
    trained = check(life, config.async_.max_staleness)
    assert life.metrics[-1]["async/groups_filtered"] > 0
    assert life.metrics[-1]["async/difficulty_bias"] < 1, "only what was not filtered is compared"
    assert max(trained) >= 2 * STEPS, "others came in their place"


def test_a_batch_that_cannot_fill_ends_the_run(tmp_path, monkeypatch):
    config = configured(
        "algorithm={kind: dapo, batch_size: 4, group_size: 2, minibatches: 1, clip_low: 0.2, clip_high: 0.28, "
        "loss_mean: token, kl_coefficient: 0.0, proximal: behaviour, behaviour_weight_cap: 5.0, "
        "dynamic_sampling: true, overlong_tokens: 0, overlong_penalty: 0.0}",
        "rollout.max_new_tokens=1",
    )
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(Life(config, tmp_path, seed=6).live())
    assert error.group_contains(RunError, match="33 groups in a row had equal rewards")


@pytest.mark.parametrize("ahead", [1, -2])
def test_a_sample_of_a_version_that_the_trainer_has_not_or_long_not_ends_the_run(tmp_path, ahead):
    with pytest.raises(ExceptionGroup) as error:
        asyncio.run(Life(configured(), tmp_path, seed=7, ahead=ahead).live())
    assert error.group_contains(EngineError, match=f"weights of version {ahead}, the current version is 0")


def test_a_checkpoint_without_its_groups_is_refused(tmp_path):
    with pytest.raises(RunDirError, match=r"replay.msgpack: not the groups under way"):
        read_stream(tmp_path)
    (tmp_path / "replay.msgpack").write_bytes(b"\x81")
    with pytest.raises(RunDirError, match=r"replay.msgpack: not the groups under way"):
        read_stream(tmp_path)
