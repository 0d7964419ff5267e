"""More groups than a batch needs, with real engines: what stops goes on with the next weights, or is lost."""

import asyncio
import random
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from sestina.controller.over_issue import OverIssue, issued
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import read_stream, write_stream
from sestina.core.records import ChunkRequest
from sestina.policies.planner import build_planner
from sestina.telemetry.journal import Journal, read_journal
from sestina.telemetry.replay import replay
from tests.unit.controller.local import LocalRanks, make_driver
from tests.unit.controller.test_stream import SHAPE, WEIGHTS, configured, make_feed
from tests.unit.rollout.helpers import finish, make_engine

STEPS, BATCH_GROUPS, GROUP_SIZE, LIMIT = 5, 2, 2, 24


def config_of(*changes):
    return configured("run.mode=sync", "rollout.over_issue=2", "async.max_staleness=2", *changes)


class Life:
    """One process of a run, whose engines refuse weights while anything runs."""

    def __init__(self, config, folder, seed=0):
        self.config, self.folder, self.random = config, folder, random.Random(seed)
        self.batches, self.metrics, self.saved = {}, [], []
        self.stop = StopRequest()

    def live(self, *, kill_after=None, stop_after=None):
        return asyncio.run(self._live(kill_after, stop_after))

    async def _live(self, kill_after, stop_after):
        with closing(Journal(self.folder / "journal.jsonl")) as journal:
            async with asyncio.TaskGroup() as tasks:
                self.feed, step = make_feed(self.config), 0
                if self.saved:
                    step, state = self.saved[-1]
                    self.feed.restore(state, self.folder)
                ranks = LocalRanks(SHAPE, WEIGHTS[step % 3], step, interruption="refuse")
                driver = make_driver(ranks, journal, tasks, step)
                self.stop = StopRequest()
                self.source = OverIssue(self.config, self.feed, driver, self.stop)
                self.source.restore(read_stream(self.folder / f"{step}") if self.saved else None)
                pump = tasks.create_task(self._pump(ranks))
                run = tasks.create_task(self._train(driver, ranks, step))
                for limit, act in ((kill_after, run.cancel), (stop_after, self.stop._ask)):
                    for _ in range(limit or 0):
                        await asyncio.sleep(0)
                    if limit is not None:
                        act()
                await asyncio.wait([run])
                pump.cancel()
                driver.abandon()
        return not run.cancelled() and run.result()

    async def _train(self, driver, ranks, step):
        while step < STEPS:
            samples = await self.source.roll_out(step + 1)
            if samples is None:
                self._save(step)
                return False
            assert all(engine.idle for engine in ranks.engines), "nothing is under way between steps"
            self.batches[step + 1] = samples
            self.metrics.append(self.source.metrics())
            step += 1
            driver.version = step
            ranks.load(step, WEIGHTS[step % 3])
            self.source.published(step)
            self._save(step)
        return True

    def _save(self, step):
        (self.folder / f"{step}").mkdir(exist_ok=True)
        write_stream(self.folder / f"{step}", self.source.state())
        self.saved.append((step, self.feed.state()))

    async def _pump(self, ranks):
        while True:
            ranks.step(self.random.randrange(2))
            await asyncio.sleep(0)


def check(life, eta):
    """Batches of whole groups, each group once, in time; every token is its version's own."""
    assert list(life.batches) == list(range(1, STEPS + 1))
    groups = [sample.id.group for batch in life.batches.values() for sample in batch]
    assert set(Counter(groups).values()) == {GROUP_SIZE}
    for step, batch in life.batches.items():
        assert len(batch) == BATCH_GROUPS * GROUP_SIZE
        assert [sample.id for sample in batch] == sorted(sample.id for sample in batch)
        for sample in batch:
            assert sample.complete
            assert (sample.outcome is None, sample.step) == (False, step)
            assert 0 <= step - 1 - sample.spans[0].version <= eta
            drawn_again(sample)
    return set(groups)


def drawn_again(sample):
    """Continue the response with each of its weights from where the last ones had left it."""
    begin = 0
    for span in sample.spans:
        engine = make_engine(SHAPE, seed=5)
        engine.load_weights(span.version, WEIGHTS[span.version % 3])
        request = ChunkRequest(
            id=sample.id,
            prompt=sample.prompt.tokens,
            generated=sample.tokens[:begin],
            max_tokens=span.num_tokens,
            max_new_tokens=LIMIT,
            temperature=sample.temperature,
        )
        result = finish(engine, [request])[sample.id]
        np.testing.assert_array_equal(result.tokens, sample.tokens[begin : begin + span.num_tokens])
        begin += span.num_tokens
    assert begin == len(sample.tokens)


def test_what_stops_goes_on_in_the_next_step(tmp_path):
    life = Life(config_of(), tmp_path)
    assert life.live()
    trained = check(life, eta=2)
    assert trained == set(range(BATCH_GROUPS * STEPS)), "no more are begun than are trained on"
    mixed = [s for batch in life.batches.values() for s in batch if len({span.version for span in s.spans}) > 1]
    assert mixed, "some were carried over with tokens"
    first, *_, last = life.metrics
    assert [line["rollout/over_issued"] for line in life.metrics] == [2, 2, 2, 2, 0]
    assert first["rollout/carried"] == 2
    assert first["rollout/carried_tokens"] == first["async/tokens_under_way"] > 0
    assert (last["rollout/carried"], last["rollout/carried_tokens"], last["rollout/dropped_tokens"]) == (0, 0, 0)
    assert first["rollout/off_policy_ratio"] == 0
    assert not any(s.restored_tokens for batch in life.batches.values() for s in batch), "no earlier start drew any"
    old = [s.versions < step - 1 for step, batch in life.batches.items() for s in batch]
    assert sum(line["rollout/off_policy_ratio"] > 0 for line in life.metrics) > 0 < np.concatenate(old).mean() < 1
    assert last["async/tokens_generated"] == last["async/tokens_trained"]


def test_what_stops_is_dropped_where_that_is_asked_for(tmp_path):
    life = Life(config_of("rollout.stopped=drop", "async.max_staleness=0"), tmp_path)
    assert life.live()
    assert len(check(life, eta=0)) == BATCH_GROUPS * STEPS
    assert all(line["rollout/off_policy_ratio"] == line["rollout/carried"] == 0 for line in life.metrics)
    assert sum(line["rollout/dropped_tokens"] for line in life.metrics) > 0
    last = life.metrics[-1]
    assert last["async/tokens_generated"] == last["async/tokens_trained"] + last["async/tokens_dropped"]
    assert life.feed.state().cursor != make_feed(life.config).state().cursor


def test_what_was_carried_for_too_long_is_waited_for(tmp_path):
    """A group of the first step whose responses are the longest there are ends within the bound all the same."""
    life = Life(config_of("async.max_staleness=1", "rollout.over_issue=2"), tmp_path, seed=3)
    assert life.live()
    check(life, eta=1)
    assert max(line["async/staleness_max"] for line in life.metrics) == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stopped", ["carry", "drop"])
def test_a_run_killed_or_stopped_at_any_moment_goes_on_from_what_is_kept(tmp_path, stopped, seed):
    life = Life(config_of(f"rollout.stopped={stopped}"), tmp_path, seed)
    moments = random.Random(seed)
    how = "stop_after" if seed % 2 else "kill_after"
    for _ in range(2):
        if life.live(**{how: moments.randrange(20, 300)}):
            break
    else:
        assert life.live()
    trained = check(life, eta=2)
    if stopped == "carry":
        assert trained == set(range(BATCH_GROUPS * STEPS))
    for segment in read_journal(tmp_path / "journal.jsonl"):
        assert replay(segment, build_planner("divided", chunk_tokens=7, seed=0)) is None


def test_a_stop_in_the_middle_of_a_step_keeps_its_tokens(tmp_path):
    life = Life(config_of(), tmp_path)
    assert not life.live(stop_after=40)
    step, _ = life.saved[-1]
    state = read_stream(tmp_path / f"{step}")
    begun = {sample.id: np.concatenate([part.tokens for part in sample.parts]).tolist() for sample in state.samples}
    assert len(state.groups) == 2 * BATCH_GROUPS
    assert begun
    assert life.live()
    trained = {sample.id: sample.tokens.tolist() for batch in life.batches.values() for sample in batch}
    assert all(trained[id][: len(tokens)] == tokens for id, tokens in begun.items())


@pytest.mark.parametrize(("over_issue", "asked", "begun"), [(1.1, 50, 55), (1.5, 3, 5), (2, 7, 14)])
def test_no_more_are_begun_than_was_asked_for(over_issue, asked, begun):
    """1.1 times 50 is a little more than 55 in floating point."""
    assert issued(over_issue, asked) == begun
