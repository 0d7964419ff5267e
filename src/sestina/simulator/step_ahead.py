"""Pipelined training in a simulated world: the next step is rolled out while the cost model's trainer takes one.

Lengths of the last epoch are those that the run has seen itself, and, if the workload says so, of an epoch before it.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sestina.config.sim import DrawnConfig
from sestina.controller.last_lengths import LastLengths
from sestina.controller.pipeline import pipeline_metrics
from sestina.core.units import Seconds, Version
from sestina.simulator.feed import SimulatedFeed, SimulatedOffer
from sestina.simulator.outcome import Spans, step_metrics
from sestina.simulator.pipeline import PipelinedWorld
from sestina.simulator.response import Response
from sestina.simulator.simulated import SimulatedDriver
from sestina.simulator.world import World

_log = logging.getLogger(__name__)


class StepAheadRun:
    """The steps of a run, each at most one version behind the trainer."""

    def __init__(self, world: World, driver: SimulatedDriver) -> None:
        self._world, self._driver = world, driver
        self._feed = SimulatedFeed(world.workload, max_new_tokens=world.config.rollout.max_new_tokens)
        self._lengths = LastLengths(seen_before(world))
        streaming = world.config.rollout.scheduler == "histopipe"
        if streaming and not len(self._lengths):
            _log.warning(
                "rollout.scheduler 'histopipe': no prompt has a history yet; until one comes again "
                "(sim.workload.epoch_steps, seen_before), each instance gets as many prompts as any other"
            )
        pipeline = PipelinedWorld(
            driver, self._offer_of, steps=world.config.run.steps, streaming=streaming, train_s=self._train_s
        )
        self._steps = self._taken(pipeline)

    def take_step(self, step: int) -> tuple[list[Response], dict[str, float]]:
        """Simulate the next step, which is this one; returns its responses and metrics.

        `perf/rollout_s` is how long the trainer waited for the batch, `perf/instances_idle_ratio` the share of the
        instances' time in which they had nothing to do.
        """
        taken, responses, values = next(self._steps)
        assert taken == step, f"step {step} is asked for, and {taken} is next"
        return responses, values

    def _taken(
        self, pipeline: PipelinedWorld[SimulatedOffer, Response]
    ) -> Iterator[tuple[int, list[Response], dict[str, float]]]:
        driver, world = self._driver, self._world
        really_s, before_s, idle_s = time.perf_counter(), driver.now_s, driver.idle_s()
        for taken in pipeline.run():
            self._lengths.record(taken.samples)
            spans = Spans(
                rollout_s=taken.waited_s,
                train_s=taken.train_s - world.weights_s,
                weights_s=world.weights_s,
                simulation_s=time.perf_counter() - really_s,
            )
            values = step_metrics(taken.samples, spans, world.uncalibrated)
            values |= pipeline_metrics(taken.samples, taken.step - 1)
            values["perf/tokens_per_s"] = values["perf/rollout_tokens"] / spans.step_s
            area_s = (driver.now_s - before_s) * len(driver.instances)
            values["perf/instances_idle_ratio"] = (driver.idle_s() - idle_s) / area_s
            really_s, before_s, idle_s = time.perf_counter(), driver.now_s, driver.idle_s()
            yield taken.step, taken.samples, values

    def _offer_of(self, step: int, version: Version, train_s: Seconds) -> SimulatedOffer:
        offer = self._feed.of_step(step)
        histories = self._lengths.of(group.prompt_id for _, group in offer.groups)
        return replace(offer, histories=histories, beta=self._lengths.beta, version=version, train_s=train_s)

    def _train_s(self, responses: Sequence[Response]) -> Seconds:
        lengths = [response.prompt_tokens + response.length for response in responses]
        return self._world.training.batch_s(lengths) + self._world.weights_s


def seen_before(world: World) -> dict[str, tuple[int, ...]]:
    """Return what prompts were answered in the epoch before a run, by prompt, if its workload has one."""
    sim = world.config.sim
    drawn = None if sim is None else sim.workload
    if not isinstance(drawn, DrawnConfig) or not drawn.seen_before:
        return {}
    before = range(1 - drawn.epoch_steps, 1)
    return {group.prompt_id: group.lengths for step in before for group in world.workload(step)}
