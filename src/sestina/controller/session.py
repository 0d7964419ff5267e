"""The verbs of the training loop, in the order in which it uses them."""

import asyncio
import time

from sestina.config.run import RunConfig
from sestina.controller.batch import eval_metrics, rollout_metrics, to_batch
from sestina.controller.batches import Batches
from sestina.controller.checkpoints import Checkpoints, ControllerState, model_of, read_state
from sestina.controller.draft_metrics import tally_metrics
from sestina.controller.draft_service import DraftService
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.histories import Histories
from sestina.controller.kv_metrics import metrics_of_pool
from sestina.controller.over_issue import OverIssue
from sestina.controller.pipeline import Pipeline
from sestina.controller.progress import Progress
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import HISTORY
from sestina.controller.sample import Sample, rows_of
from sestina.controller.setup import start_instances, start_trainer
from sestina.controller.source import BatchSource
from sestina.controller.start import Start
from sestina.controller.stop import StopRequest
from sestina.controller.stream import Stream
from sestina.controller.stream_state import read_stream
from sestina.core.units import Seconds, Version
from sestina.telemetry.idle import Spans, idle_of
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
        drafts: DraftService,
        checkpoints: Checkpoints,
        histories: Histories | None,
        metrics: MetricsWriter,
        progress: Progress,
        stop: StopRequest,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.config = config
        self.step = 0
        self._stop = stop
        self._start = start
        self._feed = feed
        self._ranks = ranks
        self._driver = driver
        self._drafts = drafts
        self._checkpoints = checkpoints
        self._histories = histories
        self._metrics = metrics
        self._progress = progress
        self._tasks = tasks
        self._building: asyncio.Task[None] | None = None
        self._saved_step: int | None = None
        sources = {"sync": OverIssue if config.overlaps else Batches, "async": Stream, "pipelined": Pipeline}
        self._batches: BatchSource = sources[config.run.mode](config, feed, driver, stop)
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
        """Bring the instances up, with the weights that lie where the run starts or continues.

        The trainer is built from there on, while the first batch rolls out.
        """
        self._progress.phase("ranks to start, and instances to read the model")
        config, checkpoint, version = self.config, self._start.checkpoint, 0
        if checkpoint is not None:
            state = read_state(checkpoint)
            self.step, version = state.step, state.version
            self._saved_step = self.step
            self._feed.restore(state.feed, checkpoint)
            if self._histories is not None:
                await self._histories.restore(checkpoint / HISTORY, config.deadlines.checkpoint_s)
            self._batches.restore(read_stream(checkpoint) if config.overlaps else None)
        model = config.model.path if checkpoint is None else model_of(checkpoint)
        limit_s = config.deadlines.start_s
        await start_instances(self._ranks, self._driver, model, version, dtype=config.trainer.dtype, start_s=limit_s)
        self._progress.begin(self.step)
        self._building = self._tasks.create_task(self._build(version))

    async def roll_out(self) -> list[Sample] | None:
        """Return the next batch, finished and rewarded; None when a stop was asked for meanwhile."""
        self._step_began_s = time.monotonic()
        self._progress.phase(self._rolling_out)
        samples = await self._batches.roll_out(self.step + 1)
        self._finished = list(samples or [])
        return samples

    async def train(self, samples: list[Sample]) -> dict[str, float]:
        """Take the optimizer steps of a batch; returns the step's metrics so far."""
        if self._histories is not None:
            self._histories.record(samples)
        metrics = rollout_metrics(samples)
        tokens = sum(sample.num_drawn - sample.restored_tokens for sample in samples)
        rolled_out_s = time.monotonic()
        await self._built()
        self._progress.phase(f"the trainer to train on {len(samples)} samples")
        batch = to_batch(samples, mixed=self.config.overlaps)
        order = TrainBatch(step=self.step + 1, temperature=self.config.rollout.temperature, batch=batch)
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
        perf |= metrics_of_pool(self.config.rollout, samples, rollout_s)
        return metrics | done.metrics | perf | self._batches.metrics()

    async def publish(self) -> dict[str, float]:
        """Give every rollout rank the current weights, verified; returns what it took."""
        version = self._driver.version
        self._progress.phase(f"weights of version {version} to reach {len(self._ranks.layout.rollouts)} instances")
        start = time.monotonic()
        limit_s = self._publish_s
        what = f"weights of version {version}"
        receive = ReceiveWeights(version=version, load=self.config.run.mode != "pipelined")
        receiving = [
            self._ranks.ask(rank, receive, WeightsLoaded, limit_s, f"to load {what}")
            for rank in self._ranks.layout.rollouts
        ]
        order = PublishWeights(version=version)
        sending = self._ranks.ask(self._ranks.first_trainer, order, WeightsLoaded, limit_s, f"to send {what}")
        sent, *_ = await asyncio.gather(sending, *receiving)
        self._batches.published(version)
        perf = {"perf/weights_s": time.monotonic() - start, "perf/weights_bytes": float(sent.num_bytes)}
        return perf | self._drafts.metrics() | self._draft_metrics()

    def _draft_metrics(self) -> dict[str, float]:
        """Return what drafters have counted; each tells it before it takes new weights."""
        metrics = tally_metrics(self._ranks.draft_tallies)
        self._ranks.draft_tallies.clear()
        return metrics | (self._histories.metrics() if self._histories is not None else {})

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
        offer = await self._batches.make_way(self._feed.held_out(self.step))
        samples = await self._driver.roll_out(offer)
        self._finished += samples
        metrics = eval_metrics(samples)
        self._progress.evaluated(metrics["eval/accuracy"])
        return metrics | {"perf/eval_s": time.monotonic() - start}

    def log(self, metrics: dict[str, float]) -> None:
        """Record a step: metrics, traces, its line; before the first step there is only an evaluation to record."""
        requests = rows_of(self._finished)
        chunks = [chunk for sample in self._finished for chunk in sample.chunks]
        if "rollout/raw_reward" in metrics:
            metrics["perf/step_s"] = time.monotonic() - self._step_began_s
            if not self.config.overlaps:
                count = self.config.rollout.num_instances
                metrics |= idle_of(requests, chunks, num_instances=count, spans=Spans.of(metrics)).metrics()
            self._progress.stepped(self.step, metrics)
        self._metrics.log(self.step, metrics)
        write_step(self.config.dir, self.step, requests, chunks)
        self._finished = []

    def checkpoint_due(self) -> bool:
        """After every so many steps; the last one is saved by `finish`."""
        every = self.config.run.checkpoint_every
        return every > 0 and self.step % every == 0

    async def save(self, *, anew: bool = False) -> None:
        """Write a checkpoint of this step; one that is there already is only replaced when asked to."""
        if self._saved_step == self.step and not anew:
            return
        self._progress.phase(f"the checkpoint of step {self.step}")
        state = ControllerState(step=self.step, version=self._driver.version, feed=self._feed.state())
        await self._checkpoints.save(state, self._batches.state())
        self._saved_step = self.step
        self._batches.forget(self.step)

    async def finish(self) -> None:
        """Save, and let every rank go; what a stop interrupts in a stream has been generated since the checkpoint."""
        await self._built()
        stream = self._batches.state() if self.stopping else None
        interrupted = stream is not None and bool(stream.groups)
        if self.step or interrupted:
            await self.save(anew=interrupted)
        self._driver.abandon()
        if self._histories is not None:
            self._histories.stop_sending()
        self._progress.phase("the ranks to leave")
        await self._ranks.stop_all(self.config.deadlines.stop_s)

    async def _build(self, version: Version) -> None:
        limits = self.config.deadlines
        weights_s = self.config.weights.timeout_s
        num_buckets = await start_trainer(self._ranks, start_s=limits.start_s, weights_s=weights_s)
        self._publish_s = weights_s * (1 + num_buckets)
        if self._start.checkpoint is not None and self._start.step:  # an optimizer that took no step has no state
            await self._checkpoints.load(self._start.checkpoint, version)

    def _rolling_out(self) -> str:
        building = self._building is not None and not self._building.done()
        return self._batches.waiting_for() + (", the trainer is being built" if building else "")

    async def _built(self) -> None:
        """Return when the trainer can be given work."""
        assert self._building is not None, "work for a trainer before the instances were up"
        if not self._building.done():
            self._progress.phase("the trainer to load Megatron, build the model and connect")
            await self._building
