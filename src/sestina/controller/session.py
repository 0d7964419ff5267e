"""The verbs of the training loop, in the order in which it uses them."""

import asyncio
import time

from sestina.config.run import RunConfig
from sestina.controller.batch import eval_metrics, rollout_metrics, to_batch
from sestina.controller.checkpoints import Checkpoints, ControllerState
from sestina.controller.driver import Offer, RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.progress import Progress
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import Start
from sestina.controller.sample import Sample
from sestina.controller.setup import connect_ranks
from sestina.controller.stop import StopRequest
from sestina.core.units import Seconds
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.traces import write_step
from sestina.transport.messages import PublishWeights, ReceiveWeights, TrainBatch, TrainDone, WeightsLoaded


class Session:
    """One run under way: its place in the data, its step, what it has recorded of the step so far."""

    def __init__(
        self,
        config: RunConfig,
        start: Start,
        feed: Feed,
        *,
        ranks: Ranks,
        driver: RolloutDriver,
        checkpoints: Checkpoints,
        metrics: MetricsWriter,
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        self.config = config
        self.step = 0
        self._stop = stop
        self._start = start
        self._feed = feed
        self._ranks = ranks
        self._driver = driver
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._progress = progress
        self._saved_step: int | None = None
        self._publish_s: Seconds = 0.0
        """Limit of a whole update, from that of each bucket."""
        self._finished: list[Sample] = []
        """Samples of this step, evaluation included, for its traces."""
        self._step_began_s: Seconds = 0.0

    @property
    def stopping(self) -> bool:
        """Whether to leave: after the step under way, or at once while it rolls out, since that can be done again."""
        return self._stop.asked

    async def connect(self) -> None:
        """Bring all ranks up, continue from the checkpoint if there is one, hand the weights out."""
        self._progress.phase("ranks to start, load the model and connect")
        limits = self.config
        num_buckets = await connect_ranks(self._ranks, self._driver, limits.deadlines.start_s, limits.weights.timeout_s)
        self._publish_s = limits.weights.timeout_s * (1 + num_buckets)
        if self._start.checkpoint is not None:
            self._progress.phase(f"the trainer to load {self._start.checkpoint}")
            state = await self._checkpoints.load(self._start.checkpoint)
            self.step = self._saved_step = state.step
            self._driver.version = state.version
            self._feed.restore(state.feed, self._start.checkpoint)
        self._progress.begin(self.step)
        await self.publish()

    async def roll_out(self) -> list[Sample] | None:
        """Return the next batch, finished and rewarded; None when a stop was asked for meanwhile."""
        offer = self._feed.draw(self.step + 1)
        self._step_began_s = time.monotonic()
        samples = await self._until_stopped(offer)
        if samples is None:
            self._feed.put_back()
            return None
        self._finished = list(samples)
        return samples

    async def train(self, samples: list[Sample]) -> dict[str, float]:
        """Take the optimizer steps of a batch; returns the step's metrics so far."""
        self._progress.phase(f"the trainer to train on {len(samples)} samples")
        metrics = rollout_metrics(samples)
        tokens = sum(sample.num_tokens for sample in samples)
        rolled_out_s = time.monotonic()
        order = TrainBatch(step=self.step + 1, temperature=self.config.rollout.temperature, batch=to_batch(samples))
        limit_s = self.config.deadlines.train_s
        done = await self._ranks.ask(
            self._ranks.first_trainer, order, TrainDone, limit_s, f"to train on the batch of step {order.step}"
        )
        self.step += 1
        self._driver.version += 1
        rollout_s = rolled_out_s - self._step_began_s
        perf = {
            "perf/rollout_s": rollout_s,
            "perf/train_s": time.monotonic() - rolled_out_s,
            "perf/rollout_tokens": float(tokens),
            "perf/tokens_per_s": tokens / rollout_s,
            "perf/engine_restarts": float(self._driver.engine_restarts),
        }
        return metrics | done.metrics | perf

    async def publish(self) -> dict[str, float]:
        """Give every rollout rank the current weights, verified; returns what it took."""
        version = self._driver.version
        self._progress.phase(f"weights of version {version} to reach {len(self._ranks.layout.rollouts)} instances")
        start = time.monotonic()
        limit_s = self._publish_s
        what = f"weights of version {version}"
        receiving = [
            self._ranks.ask(rank, ReceiveWeights(version=version), WeightsLoaded, limit_s, f"to load {what}")
            for rank in self._ranks.layout.rollouts
        ]
        order = PublishWeights(version=version)
        sending = self._ranks.ask(self._ranks.first_trainer, order, WeightsLoaded, limit_s, f"to send {what}")
        sent, *_ = await asyncio.gather(sending, *receiving)
        return {"perf/weights_s": time.monotonic() - start, "perf/weights_bytes": float(sent.num_bytes)}

    def eval_due(self) -> bool:
        """Before the first step, after every so many, and after the last."""
        every = self.config.eval.every
        if self.stopping and self.step == 0:
            return False  # nothing is lost: the next start begins with it
        resumed = self._start.checkpoint is not None and self.step == self._start.step
        return every > 0 and not resumed and (self.step % every == 0 or self.step == self.config.run.steps)

    async def evaluate(self) -> dict[str, float]:
        """Answer the held-out prompts with the current weights; returns the `eval/` metrics."""
        start = time.monotonic()
        self._progress.phase(lambda: f"evaluation, {self._driver.waiting_for()}")
        samples = await self._driver.roll_out(self._feed.held_out(self.step))
        self._finished += samples
        metrics = eval_metrics(samples)
        self._progress.evaluated(metrics["eval/accuracy"])
        return metrics | {"perf/eval_s": time.monotonic() - start}

    def log(self, metrics: dict[str, float]) -> None:
        """Record a step: metrics, traces, its line; before the first step there is only an evaluation to record."""
        if "rollout/raw_reward" in metrics:
            metrics["perf/step_s"] = time.monotonic() - self._step_began_s
            self._progress.stepped(self.step, metrics)
        self._metrics.log(self.step, metrics)
        write_step(
            self.config.dir,
            self.step,
            [sample.row() for sample in self._finished],
            [chunk for sample in self._finished for chunk in sample.chunks],
        )
        self._finished = []

    def checkpoint_due(self) -> bool:
        """After every so many steps; the last one is saved by `finish`."""
        every = self.config.run.checkpoint_every
        return every > 0 and self.step % every == 0

    async def save(self) -> None:
        """Write a checkpoint of this step unless there is one."""
        if self._saved_step == self.step:
            return
        self._progress.phase(f"the checkpoint of step {self.step}")
        state = ControllerState(step=self.step, version=self._driver.version, feed=self._feed.state())
        await self._checkpoints.save(state)
        self._saved_step = self.step

    async def finish(self) -> None:
        """Save, and let every rank go."""
        if self.step:
            await self.save()
        self._progress.phase("the ranks to leave")
        await self._ranks.stop_all(self.config.deadlines.stop_s)

    async def _until_stopped(self, offer: Offer) -> list[Sample] | None:
        if self.stopping:
            return None
        self._progress.phase(self._driver.waiting_for)
        task = asyncio.ensure_future(self._driver.roll_out(offer))
        self._stop.on_ask = task.cancel
        try:
            return await task
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            return None
        finally:
            self._stop.on_ask = None
