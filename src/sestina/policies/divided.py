"""Divided rollout without context: chunks in order of arrival, each on the least loaded instance (Seer, section 3.2).

A chunk is placed only where its context and everything it may produce fit beside what already runs, so nothing is ever
preempted. If the first waiting request fits nowhere, none is placed (section 1.4: no head-of-line skipping).
"""

from collections import deque
from itertools import islice

from sestina.policies.instances import Instances
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement, place


class DividedScheduler:
    """Implements `Scheduler`: first come, first served, chunk by chunk."""

    def __init__(self, *, chunk_tokens: int, affinity_requests: int = 0) -> None:
        self._chunk_tokens = chunk_tokens
        self._affinity_requests = affinity_requests
        self._queue: deque[Entry] = deque()

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`."""
        self._queue.append(entry)

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`."""
        if not instances.num_open or not self._queue:
            return None
        placement = place(
            self._queue[0],
            instances,
            chunk_tokens=self._chunk_tokens,
            affinity_requests=self._affinity_requests,
            reason="least-loaded",
        )
        if placement is not None:
            self._queue.popleft()
        return placement

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`."""
        return list(islice(self._queue, count))

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`; lengths change nothing here."""
