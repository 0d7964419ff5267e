"""Divided rollout without context: chunks in order of arrival, each on the least loaded instance (Seer, section 3.2).

A chunk is placed only where its context and everything it may produce fit beside what already runs, so nothing is ever
preempted. If the first waiting request fits nowhere, none is placed (section 1.4: no head-of-line skipping).
"""

from collections import deque

from sestina.policies.instances import Instances
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement


class DividedScheduler:
    """Implements `Scheduler`: first come, first served, chunk by chunk."""

    def __init__(self, *, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._queue: deque[Entry] = deque()

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`."""
        self._queue.append(entry)

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`."""
        if not self._queue:
            return None
        entry = self._queue[0]
        max_tokens = min(self._chunk_tokens, entry.remaining_tokens)
        fitting = [instance for instance in instances if instance.fits(entry.context_tokens + max_tokens)]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda instance: (instance.reserved_pages, instance.num_running, instance.id))
        self._queue.popleft()
        return Placement(entry=entry, instance=chosen.id, max_tokens=max_tokens, reason="least-loaded")

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`; lengths change nothing here."""
