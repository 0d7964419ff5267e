"""The driver of an emulated world: the planner and the journal of a real run, real engines, and virtual clocks.

An instance's clock advances by what each of its steps really took, and so does the controller's. What one sends,
another has at once; packing and reading it is work. A step holds what had arrived when it began, so cause comes before
effect, and N instances decode on one core what they would have decoded on N.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import assert_never

import torch

from sestina.controller.offer import Offer
from sestina.controller.on_the_way import OnTheWay
from sestina.controller.sample import Sample
from sestina.controller.unfinished import KeptSample
from sestina.core.errors import RunError
from sestina.core.ids import EVAL_GROUPS, GroupId, RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import (
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    Observe,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.rewards import messages as rewards
from sestina.simulator.agenda import Agenda
from sestina.simulator.clock import VirtualClock
from sestina.simulator.instance import EmulatedInstance
from sestina.simulator.scoring import Score, Workers
from sestina.telemetry.journal import Journal
from sestina.transport.codec import decode, encode
from sestina.transport.messages import AbortChunks, ChunkEnded, Message, StartChunk


@dataclass(slots=True, kw_only=True)
class EmulatedBatch:
    """A batch that has been offered to the planner."""

    samples: list[Sample]
    """Ordered by (group, sample); they grow as their chunks end."""
    on_release: Callable[[], None]
    released: bool = False
    """Every sample is finished and rewarded."""


class EmulatedDriver:
    """Rolls out batches, which may overlap; owns the instances."""

    def __init__(
        self,
        planner: RolloutPlanner,
        instances: Sequence[EmulatedInstance],
        *,
        clock: VirtualClock,
        journal: Journal,
        tokenizer: Tokenizer,
        score: Score,
        num_workers: int,
    ) -> None:
        self._planner = planner
        self._instances = {instance.id: instance for instance in instances}
        self._clock = clock
        self._journal = journal
        self._tokenizer = tokenizer
        self._score = score
        self._workers = Workers(num_workers)
        self._agenda = Agenda()
        self._samples: dict[RequestId, Sample] = {}
        """Of the batches under way."""
        self._batches: dict[int, EmulatedBatch] = {}
        self._dropped: set[GroupId] = set()
        self._on_the_way = OnTheWay()
        self._behind: set[InstanceId] = set()
        """Instances that have yet to take the weights that are being published."""
        self._num_batches = self.generated_tokens = 0
        self.version: Version = 0
        """What every instance has."""
        self.overlaps = False
        """Whether chunks run while weights are published, which makes no difference here."""
        for instance in instances:
            self._hear(0.0, instance.up)

    @property
    def now_s(self) -> Seconds:
        """The controller's time."""
        return self._clock()

    def working(self) -> AbstractContextManager[None]:
        """What the controller does meanwhile takes its time."""
        return self._clock.working()

    def roll_out(self, offer: Offer) -> list[Sample]:
        """Return the batch's samples, finished and rewarded, ordered by (group, sample)."""
        batch = self.start(offer)
        self.run_until(lambda: batch.released)
        return batch.samples

    def start(
        self,
        offer: Offer,
        kept: Mapping[RequestId, KeptSample] | None = None,
        on_release: Callable[[], None] = lambda: None,
    ) -> EmulatedBatch:
        """Begin a batch and leave it to itself; `on_release` is called when it is released."""
        assert not kept, "an emulation goes on from nothing"
        now = self.now_s
        samples = {sample.id: sample for sample in offer.samples(now)}
        self._samples |= samples
        self._num_batches += 1
        number, batch = self._num_batches, EmulatedBatch(samples=list(samples.values()), on_release=on_release)
        self._batches[number] = batch
        self._tell(lambda: offer.event(number))
        return batch

    def drop(self, group: GroupId) -> None:
        """Have a group end as soon as its chunks are given back; its samples are then neither whole nor rewarded."""
        self._dropped.add(group)
        for id, sample in self._samples.items():
            if id.group == group and sample.running is not None:
                self._send(sample.running, AbortChunks(ids=(id,)))

    def run_until(self, done: Callable[[], bool]) -> None:
        """Let things happen until `done` holds; raises RunError when nothing is left to happen."""
        while not done():
            if not self._agenda.run_next():
                left = sum(sample.outcome is None for sample in self._samples.values())
                raise RunError(f"{left} of {len(self._samples)} responses are left, and nothing goes on")

    def publish(self, version: Version, tensors: Mapping[str, torch.Tensor], at: Seconds) -> None:
        """From an instant on give weights to every instance; returns when all have taken them."""
        self._behind = set(self._instances)
        for instance in self._instances.values():
            self._agenda.put(at, lambda at, instance=instance: self._update(instance, version, tensors, at))
        self.run_until(lambda: not self._behind)
        self.version = version

    def _tell(self, read: Callable[[], Event]) -> None:
        """Have the controller hear, after what it is doing, of something that it has done itself."""
        self._agenda.put(self._clock(), lambda at: self._hear(at, read))

    def later(self, at: Seconds, happening: Callable[[], None]) -> None:
        """Have the controller learn of something at an instant."""

        def happens(at: Seconds) -> None:
            self._clock.wait_until(at)
            happening()

        self._agenda.put(at, happens)

    def _hear(self, at: Seconds, read: Callable[[], Event]) -> None:
        """The controller takes in one event that reached it at an instant."""
        self._clock.wait_until(at)
        with self._clock.working():
            event, now = read(), self._clock()
            commands = self._planner.handle(event, now)
            self._journal.record(event, now, commands)
            for command in commands:
                self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        now = self._clock()
        match command:
            case Dispatch(request=id, instance=instance) if id.group in self._dropped:
                self._tell(lambda: ChunkFinished(request=id, instance=instance, produced_tokens=0, done=True))
            case Dispatch(request=id, instance=instance):
                sample = self._samples[id]
                self._on_the_way.send(instance, id)
                self._send(instance, StartChunk(chunk=sample.start(command, now), version=sample.least_version))
            case Observe():
                raise AssertionError("no simulated response ends a turn")
            case Reward(request=id) if id.group in self._dropped:
                self._tell(lambda: SampleRewarded(request=id))
            case Reward():
                sample = self._samples[command.request]
                response = self._tokenizer.decode(sample.tokens)
                self._agenda.put(self._clock(), lambda at: self._reward(sample, response, at))
            case ReleaseBatch():
                self._release(self._batches.pop(command.batch))
            case _:
                assert_never(command)

    def _release(self, batch: EmulatedBatch) -> None:
        for sample in batch.samples:
            del self._samples[sample.id]
            self._dropped.discard(sample.id.group)
        batch.released = True
        batch.on_release()

    def _send(self, instance: InstanceId, message: Message) -> None:
        receiver, frame = self._instances[instance], encode([message])
        self._agenda.put(self._clock(), lambda at: self._arrive(receiver, frame, at))

    def _arrive(self, instance: EmulatedInstance, frame: bytes, at: Seconds) -> None:
        instance.arrive(frame)
        self._wake(instance, at)

    def _update(
        self, instance: EmulatedInstance, version: Version, tensors: Mapping[str, torch.Tensor], at: Seconds
    ) -> None:
        instance.update(version, tensors)
        self._wake(instance, at)

    def _wake(self, instance: EmulatedInstance, at: Seconds) -> None:
        if instance.has_work and not instance.stepping:
            self._step(instance, at)

    def _step(self, instance: EmulatedInstance, at: Seconds) -> None:
        instance.stepping = True
        before = instance.engine.version
        over, frame = instance.step(at)
        updated = instance.engine.version != before
        self._agenda.put(over, lambda at: self._stepped(instance, frame, at, updated=updated))

    def _stepped(self, instance: EmulatedInstance, frame: bytes | None, at: Seconds, *, updated: bool) -> None:
        instance.stepping = False
        if updated:
            self._behind.discard(instance.id)
            self._clock.wait_until(at)
        self._wake(instance, at)
        if frame is not None:
            self._tell_of(frame, at)

    def _tell_of(self, frame: bytes, at: Seconds) -> None:
        """Have the controller read of chunks that ended, one event after the other."""
        self._clock.wait_until(at)
        with self._clock.working():
            messages = decode(frame)
        for message in messages:
            assert isinstance(message, ChunkEnded), f"a controller cannot answer {type(message).__name__}"
            self._hear(at, lambda message=message: self._absorb(message))

    def _absorb(self, message: ChunkEnded) -> ChunkFinished:
        result = message.result
        self._samples[result.id].absorb(result, ahead_s=0.0, now=self._clock())
        if result.id.group < EVAL_GROUPS:
            self.generated_tokens += len(result.tokens)
        return ChunkFinished(
            request=result.id,
            instance=message.instance,
            produced_tokens=len(result.tokens),
            done=result.finish in ("stop", "length") or result.id.group in self._dropped,
            kv=self._on_the_way.report(message.instance, message.kv),
        )

    def _reward(self, sample: Sample, response: str, at: Seconds) -> None:
        prompt = sample.prompt
        outcome = self._score(
            rewards.Sample(prompt=prompt.text, response=response, label=prompt.label, meta=prompt.meta)
        )
        done = self._workers.take(at, outcome.elapsed_s)

        def rewarded() -> SampleRewarded:
            sample.outcome, sample.rewarded_s = outcome, self._clock()
            return SampleRewarded(request=sample.id)

        self._agenda.put(done, lambda at: self._hear(at, rewarded))
