"""Context-aware scheduling (Seer, section 3.3, algorithm 2; algorithms-and-numbers S-B).

The first request of every group is its probe. Probes run first, the one that has generated least ahead of the others,
so that long ones stay and show themselves. Once no probe waits, the rest runs longest first by the estimate of its
group: the limit until a member has finished, then the longest of which anything is known. (The paper looks at finished
members alone; one that has outgrown them would wait behind all other groups, for a tail of its own.) Groups of which
nothing is known take turns, so that no long one is left without a start. Every FAIR_EVERY-th pick goes instead to the
group that has been given fewest chunks, since an estimate may be wrong.

As in `divided`, a pick that fits nowhere waits, and nothing else is placed before it.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from sestina.core.ids import GroupId
from sestina.policies.instances import Instances
from sestina.policies.ranking import Ranking
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement, PlacementReason, place

FAIR_EVERY = 20


@dataclass(slots=True)
class _Group:
    limit: int
    longest: int = 0
    """Tokens of the member that had most when its last chunk ended."""
    open: int = 0
    """Members that are not finished."""
    chunks: int = 0
    finished: bool = False
    """Whether any member is."""
    probe: Entry | None = None
    """Its first request, while that waits."""
    rest: deque[Entry] = field(default_factory=deque[Entry])
    """The others that wait."""

    @property
    def estimate(self) -> int:
        """Return L_g in tokens."""
        return self.longest if self.finished else self.limit


class ContextScheduler:
    """Implements `Scheduler`; every call is O(log of the number of groups) and O(number of instances)."""

    def __init__(self, *, chunk_tokens: int, affinity_requests: int = 0) -> None:
        self._chunk_tokens = chunk_tokens
        self._affinity_requests = affinity_requests
        self._groups: dict[GroupId, _Group] = {}
        self._probes = Ranking()
        """Groups whose probe waits, by what it has generated."""
        self._longest = Ranking()
        """Groups that have others waiting, by their estimate, longest first."""
        self._least_served = Ranking()
        """The same groups, by chunks given when they were last looked at; the count only grows."""
        self._num_picks = 0

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`."""
        number = entry.id.group
        group = self._groups.get(number)
        if group is None:
            group = self._groups[number] = _Group(limit=entry.max_new_tokens)
        group.open += entry.num_chunks == 0
        self._learn(entry, done=False)
        if entry.speculative:
            group.probe = entry
            self._probes.put(number, entry.generated_tokens)
            return
        group.rest.append(entry)
        if len(group.rest) == 1:
            self._longest.put(number, -group.estimate)
            self._least_served.put(number, group.chunks)

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`."""
        picked = self._pick() if instances.num_open else None
        if picked is None:
            return None
        entry, reason = picked
        placement = place(
            entry,
            instances,
            chunk_tokens=self._chunk_tokens,
            affinity_requests=self._affinity_requests,
            reason=reason,
        )
        if placement is not None:
            self._take(entry)
        return placement

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`; leaves the picks for groups served least out of account."""
        probes = (self._groups[number].probe for number in self._probes.least(count))
        first = [probe for probe in probes if probe is not None]
        groups = self._longest.least(count - len(first))
        return first + list(islice((e for number in groups for e in self._groups[number].rest), count - len(first)))

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`; the first to finish replaces the limit, later ones can only raise the estimate."""
        number = entry.id.group
        group = self._groups.get(number)
        if group is None:
            return  # taken up complete, as was all of its group
        group.open -= entry.num_chunks > 0  # what was taken up complete has never been pushed
        self._learn(entry, done=True)
        if not group.open:
            del self._groups[number]

    def _learn(self, entry: Entry, *, done: bool) -> None:
        number = entry.id.group
        group = self._groups[number]
        before = group.estimate
        group.longest = max(group.longest, entry.generated_tokens)
        group.finished = group.finished or done
        if group.estimate != before and group.rest:
            self._longest.put(number, -group.estimate)

    def _pick(self) -> tuple[Entry, PlacementReason] | None:
        reason: PlacementReason = "probe"
        number = self._probes.first()
        if (self._num_picks + 1) % FAIR_EVERY == 0 and len(self._least_served):
            number, reason = self._served_least(), "least-served"
        elif number is None:
            number, reason = self._longest.first(), "longest-first"
        if number is None:
            return None
        group = self._groups[number]
        entry = group.probe if reason == "probe" else group.rest[0]
        assert entry is not None, f"group {number} is ranked but has no waiting request"
        return entry, reason

    def _take(self, entry: Entry) -> None:
        number = entry.id.group
        group = self._groups[number]
        self._num_picks += 1
        group.chunks += 1
        if entry.speculative:
            group.probe = None
            self._probes.drop(number)
        else:
            group.rest.popleft()
            if not group.rest:
                self._longest.drop(number)
                self._least_served.drop(number)
            elif not group.finished:
                self._longest.put(number, -group.estimate)  # behind the others of which nothing is known

    def _served_least(self) -> GroupId | None:
        while (number := self._least_served.first()) is not None:
            chunks = self._groups[number].chunks
            if self._least_served.key(number) == chunks:
                break
            self._least_served.put(number, chunks)
        return number
