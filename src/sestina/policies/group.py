"""The baseline: a whole group is bound to one instance until it is done, as veRL does.

Every request is handed over at once and unchunked; the instance queues, and preempts when its KV cache runs out.
"""

from collections import Counter, deque

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
        number = self._number(entry, len(instances))
        return Placement(entry=entry, instance=instances.ids[number], max_tokens=entry.remaining_tokens, reason="bound")

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`; none waits once an instance is up."""
        return []

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`; lengths change nothing here."""

    def _number(self, entry: Entry, count: int) -> int:
        return derive(self._seed, entry.id.group) % count


class EvenScheduler(GroupScheduler):
    """The same with equally many groups on every instance, as a batch that is split among workers beforehand.

    An instance may stand as several, one for each replica of its attention: those that follow one another. They have
    its requests in turn, as an engine deals out what comes at once.
    """

    def __init__(self, *, seed: int, replicas: int = 1) -> None:
        super().__init__(seed=seed)
        self._replicas = replicas
        self._dealt = Counter[int]()
        """Requests of each instance so far."""

    def _number(self, entry: Entry, count: int) -> int:
        instance = entry.id.group % (count // self._replicas)
        self._dealt[instance] += 1
        return instance * self._replicas + (self._dealt[instance] - 1) % self._replicas
