"""Pipelined training with real engines in one process, whatever the timing, killed or not."""

import asyncio
import random
from contextlib import closing
from dataclasses import replace

import pytest

from sestina.config.load import load
from sestina.controller.last_lengths import LastLengths, earlier_lengths
from sestina.controller.pipeline import Pipeline, pipeline_metrics
from sestina.controller.stop import StopRequest
from sestina.controller.stream_state import read_stream
from sestina.core.errors import DataError
from sestina.telemetry.journal import Journal
from sestina.telemetry.traces import write_step
from tests.unit.config.helpers import changed
from tests.unit.controller.local import LocalRanks, make_driver
from tests.unit.controller.test_stream import SHAPE, STEPS, WEIGHTS, Life, check, make_feed


def configured(scheduler, *changes):
    return load(
        changed(
            "run.mode=pipelined", f"run.steps={STEPS}", "algorithm.batch_size=4", "algorithm.group_size=2",
            "algorithm.minibatches=1", "rollout.max_new_tokens=24", f"rollout.scheduler={scheduler}", *changes,
            argv=("+exp=quickstart",),
        )
    )  # fmt: skip


class PipelinedLife(Life):
    """As a `Life`; weights are buffered, and instances load them when a chunk asks for them."""

    async def _live(self, kill_after):
        async with asyncio.TaskGroup() as tasks:
            step = self._load()
            ranks = LocalRanks(SHAPE, WEIGHTS[step % 3], step, interruption="refuse")
            kind = self.config.rollout.scheduler
            driver = make_driver(ranks, self.journal, tasks, step, kind=kind)
            self.pipeline = Pipeline(self.config, self.feed, driver, StopRequest())
            if step:
                self.pipeline.restore(read_stream(self.folder / f"{step}"))
            pump = tasks.create_task(self._pump(ranks))
            run = tasks.create_task(self._train(self.pipeline, driver, ranks, step))
            if kill_after is not None:
                await self._turns(kill_after)
                run.cancel()
            await asyncio.wait([run])
            pump.cancel()
            driver.abandon()
        return not run.cancelled()

    async def _train(self, stream, driver, ranks, step):
        ranks.load = ranks.buffered.__setitem__
        await super()._train(stream, driver, ranks, step)


@pytest.mark.parametrize("scheduler", ["divided", "context", "group", "histopipe"])
def test_every_token_is_of_the_version_before_whatever_the_timing(tmp_path, scheduler):
    lives = [PipelinedLife(configured(scheduler), tmp_path, seed) for seed in range(2)]
    assert all(asyncio.run(life.live()) for life in lives)
    for life in lives:
        assert check(life, 1) == list(range(2 * STEPS))
        for step, batch in life.batches.items():
            assert {span.version for *_, spans in batch for span in spans} == {max(0, step - 2)}
        assert [line["async/staleness_max"] for line in life.metrics] == [0] + [1] * (STEPS - 1)
    tokens = [[(id, row) for batch in life.batches.values() for id, row, _ in batch] for life in lives]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("scheduler", ["divided", "histopipe"])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_any_moment_goes_on_from_its_checkpoint(tmp_path, scheduler, seed):
    life = PipelinedLife(configured(scheduler), tmp_path, seed)
    for _ in range(2):
        if asyncio.run(life.live(kill_after=random.Random(seed).randrange(100, 400))):
            break
    else:
        assert asyncio.run(life.live())
    assert check(life, 1) == list(range(2 * STEPS))


def test_an_evaluation_waits_for_what_has_begun(tmp_path):
    life = PipelinedLife(configured("histopipe"), tmp_path, seed=1)

    async def first_steps():
        with closing(Journal(tmp_path / "journal.jsonl")) as journal:
            async with asyncio.TaskGroup() as tasks:
                ranks = LocalRanks(SHAPE, WEIGHTS[0], 0, interruption="refuse")
                driver = make_driver(ranks, journal, tasks, 0, kind="histopipe")
                pipeline = Pipeline(life.config, make_feed(life.config), driver, StopRequest())
                pump = tasks.create_task(life._pump(ranks))
                await pipeline.roll_out(1)
                driver.version = 1
                ranks.buffered[1] = WEIGHTS[1]
                offer = await pipeline.make_way(life.feed.group(9))
                assert all(batch.released.done() for batch in pipeline._open.values())
                samples = await driver.roll_out(offer)
                pump.cancel()
        return samples

    samples = asyncio.run(first_steps())
    assert {span.version for sample in samples for span in sample.spans} == {1}


def trained(tmp_path):
    life = PipelinedLife(configured("divided"), tmp_path, seed=0)
    handed_over = []
    take = Pipeline._hand_over

    async def run():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pipeline, "_hand_over", lambda *args: handed_over.append(take(*args)) or handed_over[-1])
            await life.live()

    asyncio.run(run())
    return handed_over


def test_a_token_two_versions_old_is_refused(tmp_path):
    batch = trained(tmp_path)[-1]
    assert pipeline_metrics(batch, STEPS - 1)["async/staleness_max"] == 1
    for version in (STEPS, STEPS - 3):
        with pytest.raises(AssertionError, match=f"in a batch that version {version} is trained on"):
            pipeline_metrics(batch, version)


def test_lengths_and_growth_are_kept_by_prompt(tmp_path):
    first, second, *_ = trained(tmp_path)
    lengths = LastLengths({first[0].prompt.id: (1, 1)})
    lengths.record(first)
    found = tuple(sample.num_tokens for sample in first[:2])
    assert lengths.of([first[0].prompt_id, second[0].prompt_id]) == (found, ())
    assert lengths.beta == max(1.1, sum(found) / 2)
    again = LastLengths({})
    again.restore(lengths.state())
    assert (again.of([first[0].prompt_id]), again.beta) == ((found,), lengths.beta)


def test_a_recording_seeds_the_history_and_one_of_another_dataset_is_refused(tmp_path):
    samples = trained(tmp_path)[0]
    write_step(tmp_path / "run", 1, [sample.row() for sample in samples], [])
    config = configured("histopipe", f"rollout.history_from={tmp_path / 'run'}")
    prompts = [samples[0].prompt, samples[2].prompt]
    assert earlier_lengths(config, prompts) == {
        prompt.id: tuple(sample.num_tokens for sample in samples if sample.prompt is prompt) for prompt in prompts
    }
    with pytest.raises(DataError, match=r"of another prompt set: it has prompt '\d+', which is not among the 1"):
        earlier_lengths(config, prompts[:1])
    longer = replace(prompts[0], tokens=prompts[0].tokens.repeat(2))
    with pytest.raises(DataError, match=r"of another prompt set: its prompt '\d+' has \d+ tokens, this run's has"):
        earlier_lengths(config, [longer, prompts[1]])
