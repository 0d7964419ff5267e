"""Pipelined training in an emulated world: real engines under virtual clocks, and a trainer that takes a given time.

Its weights are those that the run starts from, under a version of their own, and an instance takes the time that
loading them really takes.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from sestina.config.run import RunConfig
from sestina.controller.batch import rollout_metrics
from sestina.controller.feed import Feed
from sestina.controller.last_lengths import LastLengths
from sestina.controller.offer import Offer
from sestina.controller.pipeline import pipeline_metrics
from sestina.controller.sample import Sample
from sestina.core.units import Seconds, Version
from sestina.simulator.emulated import EmulatedDriver
from sestina.simulator.pipeline import PipelinedWorld


def pipelined_steps(
    config: RunConfig, driver: EmulatedDriver, feed: Feed, train_s: Seconds
) -> Iterator[tuple[list[Sample], dict[str, float]]]:
    """Yield each step's samples and metrics; `perf/simulation_s` is what it took here, all else is virtual time."""
    lengths = LastLengths(feed.known_lengths)

    def offer_of(step: int, version: Version, last_train_s: Seconds) -> Offer:
        offer = feed.of_step(step)
        histories = lengths.of(prompt.id for _, prompt in offer.groups)
        return replace(offer, histories=histories, beta=lengths.beta, version=version, train_s=last_train_s)

    streaming = config.rollout.scheduler == "histopipe"
    world = PipelinedWorld(driver, offer_of, steps=config.run.steps, streaming=streaming, train_s=lambda _: train_s)
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
