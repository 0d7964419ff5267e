"""The driver of a simulated world: the planner and the journal of a real run, fluid instances, one virtual clock.

The controller takes no time and messages take none on their way: what an instance ends, the planner hears at that
instant, and what it answers has arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from sestina.controller.unfinished import KeptSample
from sestina.core.errors import RunError
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds, Version
from sestina.policies.events import (
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    InstanceUp,
    Observe,
    ReleaseBatch,
    Reward,
    SampleRewarded,
)
from sestina.policies.planner import RolloutPlanner
from sestina.simulator.acceptance import Drafting
from sestina.simulator.agenda import Agenda
from sestina.simulator.chunk import Chunk
from sestina.simulator.feed import SimulatedOffer
from sestina.simulator.fluid import FluidInstance
from sestina.simulator.response import Response
from sestina.simulator.resume import Resume
from sestina.simulator.scoring import Workers
from sestina.telemetry.journal import Journal


@dataclass(slots=True, kw_only=True)
class SimulatedBatch:
    """A batch that has been offered to the planner."""

    samples: list[Response]
    """Ordered by (group, sample); they grow as their chunks end."""
    on_release: Callable[[], None]
    released: bool = False
    """Every response is finished and rewarded."""


class SimulatedDriver:
    """Rolls out batches, which may overlap; owns the instances."""

    def __init__(
        self,
        planner: RolloutPlanner,
        instances: Sequence[FluidInstance],
        *,
        page_tokens: int,
        journal: Journal | None,
        drafting: Drafting,
        resume: Resume,
        num_workers: int,
        tell_lengths: bool,
        load_s: Seconds = 0.0,
    ) -> None:
        """`tell_lengths`: the planner knows how long responses will be, as the oracle does.

        `load_s`: what an instance takes to load weights that lie in its host's memory.
        """
        self._planner = planner
        self._instances = {instance.id: instance for instance in instances}
        self._journal = journal
        self._drafting, self._resume = drafting, resume
        self._workers = Workers(num_workers)
        self._tell_lengths, self._load_s = tell_lengths, load_s
        self._agenda = Agenda()
        self.now_s: Seconds = 0.0
        """The world's time."""
        self._due: dict[InstanceId, Seconds | None] = dict.fromkeys(self._instances)
        self._turns = dict.fromkeys(self._instances, 0)
        """Of what is in the agenda; older entries are void."""
        self._touched: dict[InstanceId, None] = {}
        self._responses: dict[RequestId, Response] = {}
        """Of the batches under way."""
        self._batches: dict[int, SimulatedBatch] = {}
        self._finished: dict[GroupId, int] = {}
        """Responses that siblings may draft from."""
        self._dropped: set[GroupId] = set()
        self._behind: set[InstanceId] = set()
        """Instances that have yet to take the weights that are being published."""
        self._num_batches = self.generated_tokens = 0
        self.version: Version = 0
        """What every instance has."""
        self.overlaps = False
        """Whether chunks run while weights are published, which makes no difference here."""
        for instance in instances:
            limits = instance.limits
            self._hear(
                InstanceUp(
                    instance=instance.id,
                    kv_capacity_tokens=limits.kv_capacity_tokens,
                    page_tokens=page_tokens,
                    max_running=limits.max_running,
                )
            )

    @property
    def instances(self) -> list[FluidInstance]:
        """All of them; for figures and tests."""
        return list(self._instances.values())

    def idle_s(self) -> Seconds:
        """Return how long instances have had nothing to do, all of them together."""
        return sum(instance.idle_s(self.now_s) for instance in self._instances.values())

    def roll_out(self, offer: SimulatedOffer) -> list[Response]:
        """Return the batch's responses, all finished and rewarded, ordered by (group, sample)."""
        batch = self.start(offer)
        self.run_until(lambda: batch.released)
        return batch.samples

    def start(
        self,
        offer: SimulatedOffer,
        kept: Mapping[RequestId, KeptSample] | None = None,
        on_release: Callable[[], None] = lambda: None,
    ) -> SimulatedBatch:
        """Begin a batch and leave it to itself; `on_release` is called when it is released."""
        assert not kept, "a simulation goes on from nothing"
        responses = {response.id: response for response in offer.responses(self.now_s)}
        self._responses |= responses
        self._finished |= {group: 0 for group, _ in offer.groups}
        self._num_batches += 1
        batch = SimulatedBatch(samples=list(responses.values()), on_release=on_release)
        self._batches[self._num_batches] = batch
        self._tell(offer.event(self._num_batches, tell_lengths=self._tell_lengths))
        return batch

    def drop(self, group: GroupId) -> None:
        """Have a group end as soon as its chunks are given back; its responses are then neither whole nor rewarded."""
        self._dropped.add(group)
        for response in self._siblings(group):
            if response.dispatched is not None:
                dispatch, chunk, _ = response.dispatched
                self._abort(chunk, dispatch.instance)
        self._settle()

    def run_until(self, done: Callable[[], bool]) -> None:
        """Let things happen until `done` holds; raises RunError when nothing is left to happen."""
        while not done():
            if not self._agenda.run_next():
                left = sum(response.generated_tokens < response.length for response in self._responses.values())
                raise RunError(f"{left} of {len(self._responses)} responses are left, and nothing goes on")

    def publish(self, version: Version, at: Seconds, takes_s: Seconds) -> None:
        """From an instant on give weights to every instance, which each takes so long; returns when all have them."""
        self._behind = set(self._instances)
        self._agenda.put(at, partial(self._update, version, takes_s))
        self.run_until(lambda: not self._behind)
        have_s = max(instance.loaded_s for instance in self._instances.values())
        self._agenda.put(max(self.now_s, have_s), partial(self._published, version))
        self.run_until(lambda: self.version == version)

    def later(self, at: Seconds, happening: Callable[[], None]) -> None:
        """Have the controller learn of something at an instant."""
        self._agenda.put(at, partial(self._happens, happening))

    def _tell(self, event: Event) -> None:
        """Have the planner hear, after what is happening, of something that happens at the same instant."""
        self._agenda.put(self.now_s, partial(self._happens, partial(self._hear, event)))

    def _happens(self, happening: Callable[[], None], at: Seconds) -> None:
        self.now_s = at
        happening()
        self._settle()

    def _hear(self, event: Event) -> None:
        commands = self._planner.handle(event, self.now_s)
        if self._journal is not None:
            self._journal.record(event, self.now_s, commands)
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Observe():
                raise AssertionError("no simulated response ends a turn")
            case Dispatch(request=id, instance=instance) if id.group in self._dropped:
                self._tell(ChunkFinished(request=id, instance=instance, produced_tokens=0, done=True))
            case Dispatch():
                response, instance = self._responses[command.request], self._instances[command.instance]
                if response.least_version is not None:
                    instance.ask(response.least_version, self._load_s)
                chunk = response.start(command, self.now_s)
                chunk.classes = self._drafting.classes_of(chunk, self._finished[command.request.group])
                instance.submit(chunk)
                self._touched[command.instance] = None
            case Reward(request=id) if id.group in self._dropped:
                self._tell(SampleRewarded(request=id))
            case Reward():
                done = self._workers.take(self.now_s, self._responses[command.request].reward_s)
                self._agenda.put(done, partial(self._happens, partial(self._rewarded, command.request)))
            case ReleaseBatch():
                self._release(self._batches.pop(command.batch))
            case _:
                assert_never(command)

    def _release(self, batch: SimulatedBatch) -> None:
        for response in batch.samples:
            del self._responses[response.id]
            self._finished.pop(response.id.group, None)
            self._dropped.discard(response.id.group)
        batch.released = True
        batch.on_release()

    def _settle(self) -> None:
        """Have every instance that something has come to take it in, and put down its next event."""
        for number in self._touched:
            instance = self._instances[number]
            due = instance.settle(self.now_s)
            if instance.version != self.version:
                self._behind.discard(number)
            if due != self._due[number]:
                self._due[number] = due
                self._turns[number] += 1
                if due is not None:
                    self._agenda.put(due, partial(self._event, number, self._turns[number]))
        self._touched.clear()

    def _event(self, number: InstanceId, turn: int, at: Seconds) -> None:
        if turn != self._turns[number]:
            return
        self.now_s = at
        self._due[number] = None
        self._touched[number] = None
        for chunk in self._instances[number].finish():
            self._end(chunk, number)
        self._settle()

    def _end(self, chunk: Chunk, number: InstanceId) -> None:
        chunk.done |= chunk.request.group in self._dropped
        self._responses[chunk.request].absorb(chunk, number, self.now_s)
        self.generated_tokens += chunk.tokens
        self._resume.left(chunk, number)
        if chunk.done:
            self._one_more(chunk.request.group)
        self._hear(
            ChunkFinished(
                request=chunk.request,
                instance=number,
                produced_tokens=chunk.tokens,
                done=chunk.done,
                kv=self._instances[number].kv(),
            )
        )

    def _abort(self, chunk: Chunk, number: InstanceId) -> None:
        instance = self._instances[number]
        self._touched[number] = None
        if not instance.abort(chunk):
            chunk.tokens, chunk.done, chunk.finished_s = int(chunk.produced), True, self.now_s
            chunk.turn(chunk.version, kept_kv=chunk.kept_kv)
            self._agenda.put(self.now_s, partial(self._happens, partial(self._end, chunk, number)))

    def _one_more(self, group: GroupId) -> None:
        """A response has finished, and its siblings' drafts may be better from then on."""
        before, after = self._finished[group], self._finished[group] + 1
        self._finished[group] = after
        number = self._drafting.level(after)
        if number == self._drafting.level(before):
            return
        for sibling in self._siblings(group):
            if sibling.dispatched is not None:
                dispatch, chunk, _ = sibling.dispatched
                self._instances[dispatch.instance].reclass(chunk, number)
                self._touched[dispatch.instance] = None

    def _siblings(self, group: GroupId) -> list[Response]:
        found: list[Response] = []
        while (sibling := self._responses.get(RequestId(group, len(found)))) is not None:
            found.append(sibling)
        return found

    def _rewarded(self, request: RequestId) -> None:
        self._responses[request].rewarded_s = self.now_s
        self._hear(SampleRewarded(request=request))

    def _published(self, version: Version, at: Seconds) -> None:
        self.now_s, self.version = at, version

    def _update(self, version: Version, takes_s: Seconds, at: Seconds) -> None:
        """Weights reach every instance; drafts from responses of older ones are forgotten."""
        self.now_s = at
        self._finished = dict.fromkeys(self._finished, 0)
        self._resume.forget()
        for instance in self._instances.values():
            instance.update(version, takes_s)
            self._touched[instance.id] = None
        self._settle()
