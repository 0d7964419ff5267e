"""Ranked batches on workers that go on to the next batch by themselves (RhymeRL, section 5).

A worker has done its part of a batch when nothing of its ranking group waits and nothing runs on it; it then turns to
the next batch that was offered, whose weights it loads with the first chunk. Chunks return to the worker that has their
keys and values. What holds its group up leaves it: from the shorter half of the groups to a worker of a later group,
from the longer half to one that has turned, where it goes on with that one's weights. It stays in its batch.
"""

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice

from sestina.core.ids import RequestId
from sestina.core.units import InstanceId, Seconds
from sestina.policies.events import BatchOffered, ChunkFinished, Event, KvReported, PlacementReason, TurnEnded
from sestina.policies.histopipe.batch import RankedBatch, RankedGroup, lay_out
from sestina.policies.histopipe.migration import Route, intra_step_target, migrating, route
from sestina.policies.histopipe.profile import Part, Profile
from sestina.policies.instances import Instance, Instances
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement


class Worker:
    """An instance as this scheduler sees it."""

    def __init__(self) -> None:
        self.batch = -1
        """The one whose part it does, or did last."""
        self.version = 0
        """Of the chunks that it was given."""
        self.home: deque[Entry] = deque()
        """Responses that wait to go on here."""
        self.running = 0
        self.part: OpenPart | None = None


@dataclass(slots=True, kw_only=True)
class OpenPart:
    """What a worker has done of its batch so far."""

    began_s: Seconds
    ended_s: Seconds
    tokens: int = 0
    longest: int = 0


class HistoPipeScheduler:
    """Implements `Scheduler`, and is told every event first."""

    def __init__(self, *, chunk_tokens: int, num_groups: int, two_tier: bool = True) -> None:
        """`two_tier`: groups have as many workers as the plan gives them, in place of equally many (section 6.4)."""
        self._chunk_tokens = chunk_tokens
        self._num_groups, self._two_tier = num_groups, two_tier
        self._offers: dict[int, BatchOffered] = {}
        """Not laid out yet."""
        self._pushed: dict[int, list[Entry]] = {}
        """Of these."""
        self._batches: dict[int, RankedBatch] = {}
        """In order; those with a response that is not complete."""
        self._workers: dict[InstanceId, Worker] = {}
        self._look: dict[InstanceId, None] = {}
        """Workers that something can be placed on, perhaps; in turn."""
        self._moved: dict[RequestId, PlacementReason] = {}
        self._profile = Profile()
        self._num_ranked = 0
        self._now: Seconds = 0.0

    def observe(self, event: Event, now: Seconds) -> None:
        """Be told what happens, before anything is asked."""
        self._now = now
        if isinstance(event, BatchOffered):
            self._offers[event.batch] = event
        elif isinstance(event, ChunkFinished | TurnEnded):
            worker = self._workers[event.instance]
            worker.running -= 1
            self._look[event.instance] = None
            if worker.part is not None:
                worker.part.ended_s = now
                worker.part.tokens += event.produced_tokens
        elif isinstance(event, KvReported) and event.instance in self._workers:
            self._look[event.instance] = None

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`."""
        batch = self._batches.get(entry.batch)
        if batch is None:
            self._pushed.setdefault(entry.batch, []).append(entry)
            return
        group = batch.by_prompt[entry.id.group]
        group.unfinished[entry.id] = entry.generated_tokens
        assert entry.instance is not None, f"request {entry.id} waits anew in a batch that has begun"
        target = self._leave(batch, group, entry)
        home = entry.instance if target is None else target
        self._workers[home].home.append(entry)
        self._look[home] = None

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`; workers take turns."""
        if self._pushed and len(instances):
            self._lay_out(instances)
        while self._look:
            number = next(iter(self._look))
            del self._look[number]
            placement = self._place(instances[number], self._workers[number])
            if placement is not None:
                self._look[number] = None
                return placement
        return None

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`; what has begun comes first."""
        begun = (entry for worker in self._workers.values() for entry in worker.home)
        queued = (entry for batch in self._batches.values() for group in batch.groups for entry in group.queue)
        return list(islice(chain(begun, queued, *self._pushed.values()), count))

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`."""
        batch = self._batches.get(entry.batch)
        if batch is None:
            return  # complete before it was offered
        del batch.by_prompt[entry.id.group].unfinished[entry.id]
        self._moved.pop(entry.id, None)
        part = None if entry.instance is None else self._workers[entry.instance].part
        if part is not None:
            part.longest = max(part.longest, entry.generated_tokens)
        if batch.over:
            del self._batches[batch.id]

    def _lay_out(self, instances: Instances) -> None:
        workers = sorted(instance.id for instance in instances)
        for number in workers:
            self._workers.setdefault(number, Worker())
            self._look[number] = None
        for id, entries in self._pushed.items():
            prompts = list(dict.fromkeys(entry.id.group for entry in entries))
            offer, step = self._offers[id], self._num_ranked + 1
            batch = lay_out(
                offer,
                prompts,
                workers,
                self._profile,
                num_groups=self._num_groups,
                step=step,
                two_tier=self._two_tier,
            )
            self._num_ranked += batch.ranked
            for entry in entries:
                batch.add(entry)
            self._batches[id] = batch
        self._pushed.clear()
        self._offers.clear()

    def _place(self, instance: Instance, worker: Worker) -> Placement | None:
        if worker.home:
            entry = worker.home[0]
            placement = self._chunk(entry, instance, worker, self._moved.get(entry.id, "ranked"))
            return placement and self._begin(placement, worker, worker.home)
        group = self._duty(instance.id, worker)
        if group is None or worker.running >= group.share:
            return None
        placement = self._chunk(group.queue[0], instance, worker, "ranked")
        return placement and self._begin(placement, worker, group.queue)

    def _chunk(self, entry: Entry, instance: Instance, worker: Worker, reason: PlacementReason) -> Placement | None:
        """Return the next chunk of a response if it fits, and if nothing runs under weights that it has to replace."""
        if self._batches[entry.batch].version > worker.version and worker.running:
            return None
        max_tokens = min(self._chunk_tokens, entry.remaining_tokens)
        if not instance.fits(entry.context_tokens + max_tokens):
            return None
        return Placement(entry=entry, instance=instance.id, max_tokens=max_tokens, reason=reason)

    def _begin(self, placement: Placement, worker: Worker, queue: "deque[Entry]") -> Placement:
        queue.popleft()
        worker.running += 1
        worker.version = max(worker.version, self._batches[placement.entry.batch].version)
        if worker.part is None:
            worker.part = OpenPart(began_s=self._now, ended_s=self._now)
        return placement

    def _duty(self, number: InstanceId, worker: Worker) -> RankedGroup | None:
        """Return the group that the worker takes responses of; turns it to the next batch when its part is done."""
        for id, batch in self._batches.items():
            if id < worker.batch or (id > worker.batch and worker.running):
                continue
            if id > worker.batch:
                self._turn(worker, id)
            group = batch.by_worker.get(number)
            if group is not None and group.queue:
                return group
        return None

    def _turn(self, worker: Worker, batch: int) -> None:
        worker.batch, part, worker.part = batch, worker.part, None
        if part is not None:
            self._profile.learn(Part(longest=part.longest, tokens=part.tokens, seconds=part.ended_s - part.began_s))

    def _leave(self, batch: RankedBatch, group: RankedGroup, entry: Entry) -> InstanceId | None:
        """Return where a response migrates to; None: it stays where it is."""
        if not batch.ranked or entry.id in self._moved:
            return None
        leaving = migrating(group.unfinished, total=group.total, highest_median=group.highest_median, beta=batch.beta)
        if entry.id not in leaving:
            return None
        target, way = self._target(batch, group)
        if target is not None:
            self._moved[entry.id] = way
        return target

    def _target(self, batch: RankedBatch, group: RankedGroup) -> tuple[InstanceId | None, Route]:
        """Return where to, and how; a shorter group whose later ones have all turned goes the longer ones' way."""
        loads = {number: worker.running + len(worker.home) for number, worker in self._workers.items()}
        if route(group.index, len(batch.groups)) == "intra-step":
            at_it = [
                [each for each in later.workers if self._workers[each].batch == batch.id] for later in batch.groups
            ]
            target = intra_step_target(group.index, at_it, loads)
            if target is not None:
                return target, "intra-step"
        turned = (number for number, worker in self._workers.items() if worker.batch > batch.id)
        return min(turned, key=lambda number: (loads[number], number), default=None), "inter-step"
