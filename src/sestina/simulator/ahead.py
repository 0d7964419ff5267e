"""Asynchronous training in a simulated world: rollout goes on while the cost model's trainer works.

take a batch as soon as one is there -> train -> publish the weights, which interrupt instances or wait for them

Gate, replay buffer and accounts are those of a real run.
"""

import time

from sestina.simulator.asked import AskedAdmission
from sestina.simulator.feed import SimulatedFeed, SimulatedOffer
from sestina.simulator.outcome import Spans, step_metrics
from sestina.simulator.response import Response
from sestina.simulator.simulated import SimulatedDriver
from sestina.simulator.world import World


class AheadRun:
    """The steps of a run, one after the other, their rollouts overlapping."""

    def __init__(self, world: World, driver: SimulatedDriver) -> None:
        self._world, self._driver = world, driver
        feed = SimulatedFeed(world.workload, max_new_tokens=world.config.rollout.max_new_tokens)
        self._admission: AskedAdmission[SimulatedOffer, Response] = AskedAdmission(
            world.config, feed, driver, lambda: driver.now_s
        )

    def take_step(self, step: int) -> tuple[list[Response], dict[str, float]]:
        """Simulate one step; returns its responses and metrics.

        `perf/rollout_s` is how long the trainer waited for the batch, `perf/instances_idle_ratio` the share of the
        instances' time in which they had nothing to do.
        """
        driver, really_s = self._driver, time.perf_counter()
        began_s, idle_s = driver.now_s, driver.idle_s()
        responses = self._batch(step)
        taken_s, values = driver.now_s, self._admission.metrics()
        train_s = self._world.training.batch_s([response.prompt_tokens + response.length for response in responses])
        driver.publish(driver.version + 1, taken_s + train_s, self._world.weights_s)
        self._admission.published(driver.version)
        spans = Spans(
            rollout_s=taken_s - began_s,
            train_s=train_s,
            weights_s=driver.now_s - taken_s - train_s,
            simulation_s=time.perf_counter() - really_s,
        )
        area_s = spans.step_s * len(driver.instances)
        idle = {"perf/instances_idle_ratio": (driver.idle_s() - idle_s) / area_s}
        return responses, step_metrics(responses, spans, self._world.uncalibrated) | values | idle

    def _batch(self, step: int) -> list[Response]:
        found: list[Response] = []
        self._admission.news = True

        def take() -> bool:
            found.extend(self._admission.take_if_new(step) or [])
            return bool(found)

        self._driver.run_until(take)
        return found
