"""Pipelined training in an emulated world: batches a step ahead of a trainer that has a clock of its own.

The trainer takes a given time for a step. Its weights are those that the run starts from, under a version of their own,
and an instance takes the time that loading them really takes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from sestina.config.run import RunConfig
from sestina.controller.batch import rollout_metrics
from sestina.controller.feed import Feed
from sestina.controller.last_lengths import LastLengths
from sestina.controller.offer import Offer
from sestina.controller.pipeline import pipeline_metrics
from sestina.controller.sample import Sample
from sestina.core.units import Seconds, Version
from sestina.policies.one_step_off import OneStepOff
from sestina.simulator.emulated import EmulatedBatch, EmulatedDriver

OfferOf: TypeAlias = Callable[[int, Version, Seconds], Offer]
"""The batch of a step, to begin with a version, the last training step having taken so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTaken:
    """A step that is trained on."""

    step: int
    samples: list[Sample]
    waited_s: Seconds
    """The trainer, for its batch."""
    trained_s: Seconds
    """When it was done."""


class PipelinedWorld:
    """One rollout, one trainer, one step between them."""

    def __init__(
        self, driver: EmulatedDriver, offer_of: OfferOf, *, steps: int, streaming: bool, train_s: Seconds
    ) -> None:
        self._driver = driver
        self._offer_of = offer_of
        self._steps = steps
        self._train_s = train_s
        self._off = OneStepOff(steps=steps, trained=0, streaming=streaming)
        self._batches: dict[int, EmulatedBatch] = {}
        self._version: Version = 0
        self._news = False
        """Whether a batch is complete or weights are there since it was last asked."""

    def run(self) -> Iterator[StepTaken]:
        """Take every step, in order."""
        free_s = self._driver.now_s
        for step in range(1, self._steps + 1):
            self._until(lambda step=step: step in self._batches and self._batches[step].released)
            began_s = max(free_s, self._driver.now_s)
            waited_s, free_s = began_s - free_s, began_s + self._train_s
            self._driver.later(free_s, lambda step=step: self._publish(step))
            self._until(lambda step=step: self._version == step)
            samples = self._batches.pop(step).samples
            yield StepTaken(step=step, samples=samples, waited_s=waited_s, trained_s=free_s)

    def _until(self, done: Callable[[], bool]) -> None:
        """Let things happen, and batches begin as soon as they may."""
        while not done():
            for step in self._off.due(self._version):
                offer = self._offer_of(step, self._version, self._train_s if self._version else 0.0)
                self._batches[step] = self._driver.start(offer, on_release=self._released)
            self._news = False
            self._driver.run_until(lambda: self._news or done())

    def _released(self) -> None:
        self._off.rolled_out()
        self._news = True

    def _publish(self, version: Version) -> None:
        self._version = version
        self._news = True


def pipelined_steps(
    config: RunConfig, driver: EmulatedDriver, feed: Feed, train_s: Seconds
) -> Iterator[tuple[list[Sample], dict[str, float]]]:
    """Yield each step's samples and metrics; `perf/simulation_s` is what it took here, all else is virtual time."""
    lengths = LastLengths(feed.known_lengths)

    def offer_of(step: int, version: Version, train_s: Seconds) -> Offer:
        offer = feed.of_step(step)
        histories = lengths.of(prompt for _, prompt in offer.groups)
        return replace(offer, histories=histories, beta=lengths.beta, version=version, train_s=train_s)

    streaming = config.rollout.scheduler == "histopipe"
    world = PipelinedWorld(driver, offer_of, steps=config.run.steps, streaming=streaming, train_s=train_s)
    really_s, before_s = time.perf_counter(), driver.now_s
    for taken in world.run():
        lengths.record(taken.samples)
        now, step_s = time.perf_counter(), taken.trained_s - before_s
        tokens = float(sum(sample.num_tokens for sample in taken.samples))
        perf = {
            "perf/rollout_s": taken.waited_s,
            "perf/train_s": train_s,
            "perf/step_s": step_s,
            "perf/rollout_tokens": tokens,
            "perf/tokens_per_s": tokens / step_s,
            "perf/simulation_s": now - really_s,
        }
        yield taken.samples, rollout_metrics(taken.samples) | pipeline_metrics(taken.samples, taken.step - 1) | perf
        really_s, before_s = now, taken.trained_s
