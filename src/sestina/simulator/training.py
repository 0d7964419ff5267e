"""The training loop in an emulated world: what `controller/session.py` does in a real one, in virtual time.

roll out a batch -> train on it -> publish the weights -> evaluate when due
"""

import time
from collections.abc import Sequence

from sestina.config.run import RunConfig
from sestina.controller.batch import eval_metrics, rollout_metrics, to_batch
from sestina.controller.feed import Feed
from sestina.controller.kv_metrics import metrics_of_pool
from sestina.controller.sample import Sample
from sestina.core.units import Seconds
from sestina.simulator.asked import AskedAdmission
from sestina.simulator.emulated import EmulatedDriver
from sestina.simulator.trainer import EmulatedTrainer
from sestina.telemetry.idle import Spans, idle_of

Values = dict[str, float]


class EmulatedRun:
    """The steps of a run, one after the other; without a trainer every batch comes from the same weights."""

    def __init__(self, config: RunConfig, feed: Feed, driver: EmulatedDriver, trainer: EmulatedTrainer | None) -> None:
        self._config, self._feed, self._driver, self._trainer = config, feed, driver, trainer
        self._mixed = config.run.mode == "async"
        self._admission = AskedAdmission(config, feed, driver, lambda: driver.now_s) if self._mixed else None

    def begin(self) -> tuple[list[Sample], Values]:
        """Evaluate the weights that the run starts from, if it evaluates."""
        return self._evaluate(0) if self._eval_due(0) else ([], {})

    def step(self, step: int) -> tuple[list[Sample], Values]:
        """Take a step; returns its samples, held-out ones last, and its metrics.

        `perf/simulation_s` is what it took here; everything else is virtual time.
        """
        really_s, began_s = time.perf_counter(), self._driver.now_s
        samples = self._batch(step)
        rollout_s = self._driver.now_s - began_s
        tokens = float(sum(sample.num_tokens for sample in samples))
        values = rollout_metrics(samples) | {
            "perf/rollout_s": rollout_s,
            "perf/rollout_tokens": tokens,
            "perf/tokens_per_s": tokens / rollout_s if rollout_s else float("nan"),
        }
        values |= metrics_of_pool(self._config.rollout, samples, rollout_s)
        if self._admission is not None:
            values |= self._admission.metrics()
        if self._trainer is not None:
            values |= self._train(self._trainer, samples)
        values["perf/step_s"] = self._driver.now_s - began_s
        if not self._mixed:
            values |= self._idle(samples, values)
        held_out, accuracy = self._evaluate(step) if self._eval_due(step) else ([], {})
        return samples + held_out, values | accuracy | {"perf/simulation_s": time.perf_counter() - really_s}

    def _idle(self, samples: Sequence[Sample], values: Values) -> Values:
        rows, chunks = [sample.row() for sample in samples], [chunk for sample in samples for chunk in sample.chunks]
        instances = self._config.rollout.num_instances
        return idle_of(rows, chunks, num_instances=instances, spans=Spans.of(values)).metrics()

    def _batch(self, step: int) -> list[Sample]:
        admission = self._admission
        if admission is None:
            return self._driver.roll_out(self._feed.draw(step))
        admission.news, found = True, list[Sample]()

        def take() -> bool:
            """The controller puts the batch together and keeps its accounts, in its own time."""
            if admission.news:
                with self._driver.working():
                    found.extend(admission.take_if_new(step) or [])
            return bool(found)

        self._driver.run_until(take)
        return found

    def _train(self, trainer: EmulatedTrainer, samples: Sequence[Sample]) -> Values:
        """The instances go on meanwhile, and take the weights between two steps of theirs."""
        driver = self._driver
        with driver.working():
            batch = to_batch(samples, mixed=self._mixed)
        began_s = driver.now_s
        metrics, train_s = trainer.train(batch, driver.version, temperature=self._config.rollout.temperature)
        tensors, export_s = trainer.weights()
        driver.publish(driver.version + 1, tensors, began_s + train_s + export_s)
        self._published()
        return metrics | {"perf/train_s": train_s, "perf/weights_s": driver.now_s - began_s - train_s}

    def _published(self) -> None:
        if self._admission is not None:
            with self._driver.working():
                self._admission.published(self._driver.version)

    def _evaluate(self, step: int) -> tuple[list[Sample], Values]:
        began_s: Seconds = self._driver.now_s
        samples = self._driver.roll_out(self._feed.held_out(step))
        return samples, eval_metrics(samples) | {"perf/eval_s": self._driver.now_s - began_s}

    def _eval_due(self, step: int) -> bool:
        """As in a real run: before the first step, after every so many, and after the last."""
        every = self._config.eval.every if self._trainer is not None else 0
        return every > 0 and (step % every == 0 or step == self._config.run.steps)
