"""The baseline: a whole group is bound to one instance until it is done, as veRL does.

Every request is handed over at once and unchunked; the instance queues, and preempts when its KV cache runs out.
"""

from collections import deque

from sestina.core.ids import GroupId
from sestina.core.noise import derive
from sestina.policies.instances import Instances
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement


class GroupScheduler:
    """Implements `Scheduler`: an instance drawn by (seed, group), no chunks, no regard for load."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._queue: deque[Entry] = deque()

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`."""
        self._queue.append(entry)

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`."""
        if not self._queue or not len(instances):
            return None
        entry = self._queue.popleft()
        number = self._number(entry.id.group) % len(instances)
        return Placement(entry=entry, instance=instances.ids[number], max_tokens=entry.remaining_tokens, reason="bound")

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`; none waits once an instance is up."""
        return []

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`; lengths change nothing here."""

    def _number(self, group: GroupId) -> int:
        return derive(self._seed, group)


class EvenScheduler(GroupScheduler):
    """The same with equally many groups on every instance, as a batch that is split among workers beforehand."""

    def _number(self, group: GroupId) -> int:
        return group
