"""The object that decides a rollout: request buffer, instances and scheduler behind one Machine.

Invariants: a request is in one place at a time and ends exactly once; a batch is released exactly once, when its last
sample has its reward; with a scheduler that asks `Instance.fits`, what requests can come to hold never exceeds an
instance's capacity because of one that was placed.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, assert_never

from sestina.core.units import InstanceId, Seconds
from sestina.policies.context import ContextScheduler
from sestina.policies.divided import DividedScheduler
from sestina.policies.events import (
    BatchOffered,
    Begun,
    ChunkFinished,
    Command,
    Dispatch,
    Event,
    InstanceUp,
    KvReport,
    KvReported,
    Observe,
    Observed,
    ReleaseBatch,
    Reward,
    SampleRewarded,
    TurnEnded,
)
from sestina.policies.group import GroupScheduler
from sestina.policies.histopipe.scheduler import HistoPipeScheduler
from sestina.policies.instances import Instances
from sestina.policies.oracle import OracleScheduler
from sestina.policies.request_buffer import Entry, RequestBuffer
from sestina.policies.scheduler import Placement, Scheduler

NEWS_SHARE = 100
"""An instance is listened to between chunks when what it says differs by its capacity over this."""

SchedulerKind: TypeAlias = Literal["group", "divided", "context", "oracle", "histopipe"]


def build_planner(
    kind: SchedulerKind, *, chunk_tokens: int, seed: int, affinity_requests: int = 0, ranking_groups: int = 8
) -> "RolloutPlanner":
    """Return a planner with the named scheduler; `group` does not chunk and ignores all but the seed."""
    chunks = {"chunk_tokens": chunk_tokens, "affinity_requests": affinity_requests}
    match kind:
        case "group":
            return RolloutPlanner(GroupScheduler(seed=seed))
        case "divided":
            return RolloutPlanner(DividedScheduler(**chunks))
        case "context":
            return RolloutPlanner(ContextScheduler(**chunks))
        case "oracle":
            return RolloutPlanner(OracleScheduler(**chunks))
        case "histopipe":
            histopipe = HistoPipeScheduler(chunk_tokens=chunk_tokens, num_groups=ranking_groups)
            return RolloutPlanner(histopipe, observe=histopipe.observe)
        case _:
            assert_never(kind)


class RolloutPlanner:
    """A `Machine[Event, Command]`.

    Example:
        >>> planner = RolloutPlanner(DividedScheduler(chunk_tokens=64))
        >>> planner.handle(InstanceUp(instance=0, kv_capacity_tokens=4096, page_tokens=16, max_running=8), now=0.0)
        []
        >>> group = GroupSpec(group=0, prompt_tokens=20, num_samples=1, max_new_tokens=100)
        >>> planner.handle(BatchOffered(batch=0, groups=(group,)), now=0.1)
        [Dispatch(request=RequestId(group=0, sample=0), instance=0, max_tokens=64, reason='least-loaded')]
    """

    def __init__(self, scheduler: Scheduler, observe: Callable[[Event, Seconds], None] | None = None) -> None:
        """`observe`: a scheduler that plans ahead is told every event through it, before anything comes of it."""
        self._scheduler = scheduler
        self._observe = observe
        self._buffer = RequestBuffer()
        self._instances = Instances()
        self._open_samples: dict[int, int] = {}
        """Samples without a reward, by batch."""

    @property
    def instances(self) -> Instances:
        """What is reserved where; for display and tests."""
        return self._instances

    def handle(self, event: Event, now: Seconds) -> Sequence[Command]:
        """See `Machine.handle`."""
        commands: list[Command] = []
        if self._observe is not None:
            self._observe(event, now)
        match event:
            case InstanceUp():
                self._instances.add(event)
            case KvReported():
                self._instances.learn(event.instance, event.kv)
            case BatchOffered():
                commands += self._offer(event)
            case ChunkFinished():
                commands += self._finish_chunk(event)
            case TurnEnded():
                commands += self._end_turn(event)
            case Observed():
                commands += self._goes_on(self._buffer.observe(event.request, event.observed_tokens, done=event.done))
            case SampleRewarded():
                commands += self._rewarded(event)
            case _:
                assert_never(event)
        return commands + self._place_waiting()

    def upcoming(self, count: int) -> list[Entry]:
        """Return up to `count` waiting requests that come next, as the scheduler sees it; mutates nothing."""
        return self._scheduler.upcoming(count)

    def is_news(self, instance: InstanceId, kv: KvReport) -> bool:
        """Whether a report changes where what waits may run, by a hundredth of an instance; mutates nothing."""
        if instance not in self._instances:
            return False  # it is not up yet, and says its capacity then
        known = self._instances[instance]
        if kv.capacity_tokens // known.page_tokens != known.num_pages:
            return True
        changed = abs(known.bound_by(kv) - known.reserved_pages)
        return changed * NEWS_SHARE >= known.num_pages and bool(self._scheduler.upcoming(1))

    def wake_at(self) -> Seconds | None:
        """See `Machine.wake_at`; time alone changes nothing here."""
        return None

    def wake(self, now: Seconds) -> Sequence[Command]:
        """See `Machine.wake`."""
        return ()

    def _offer(self, offer: BatchOffered) -> list[Command]:
        assert offer.batch not in self._open_samples, f"batch {offer.batch} offered twice"
        self._open_samples[offer.batch] = sum(group.num_samples for group in offer.groups)
        entries = [entry for group in offer.groups for entry in self._buffer.add(offer.batch, group)]
        taken_up = [self._buffer.take_up(each) for each in offer.begun]
        for entry in entries:
            if entry.state == "waiting":
                self._scheduler.push(entry)
        done = [(entry, each) for entry, each in zip(taken_up, offer.begun, strict=True) if each.done]
        finished = [command for each in done for command in self._finish_begun(*each)]
        return finished + [Observe(request=each.request) for each in offer.begun if each.paused]

    def _finish_begun(self, entry: Entry, begun: Begun) -> list[Command]:
        """A response was complete before its batch was offered: others of its group can be judged by it."""
        self._scheduler.finished(entry)
        if begun.rewarded:
            return self._rewarded(SampleRewarded(request=begun.request))
        return [Reward(request=begun.request)]

    def _finish_chunk(self, event: ChunkFinished) -> list[Command]:
        self._free(event)
        return self._goes_on(self._buffer.finish_chunk(event.request, event.produced_tokens, done=event.done))

    def _end_turn(self, event: TurnEnded) -> list[Command]:
        """The instance keeps no room for it: how long the environment takes is nobody's to know."""
        self._free(event)
        self._buffer.end_turn(event.request, event.produced_tokens)
        return [Observe(request=event.request)]

    def _free(self, event: ChunkFinished | TurnEnded) -> None:
        self._instances.release(event.instance, event.request)
        if event.kv is not None:
            self._instances.learn(event.instance, event.kv)

    def _goes_on(self, entry: Entry) -> list[Command]:
        if entry.state == "waiting":
            self._scheduler.push(entry)
            return []
        self._scheduler.finished(entry)
        return [Reward(request=entry.id)]

    def _rewarded(self, event: SampleRewarded) -> list[Command]:
        batch = self._buffer.drop(event.request).batch
        self._open_samples[batch] -= 1
        if self._open_samples[batch]:
            return []
        del self._open_samples[batch]
        return [ReleaseBatch(batch=batch)]

    def _place_waiting(self) -> list[Command]:
        commands: list[Command] = []
        while (placement := self._scheduler.next(self._instances)) is not None:
            commands.append(self._start(placement))
        return commands

    def _start(self, placement: Placement) -> Dispatch:
        entry = placement.entry
        self._instances.reserve(placement.instance, entry.id, entry.context_tokens + placement.max_tokens)
        self._buffer.start(entry.id, placement.instance)
        return Dispatch(
            request=entry.id,
            instance=placement.instance,
            max_tokens=placement.max_tokens,
            reason=placement.reason,
        )
