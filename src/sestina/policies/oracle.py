"""Longest first by lengths that are known beforehand, from a recorded run: the bound that `context` is held against.

Lengths only order requests. One that turns out longer than recorded goes on like any other.
"""

from sestina.core.ids import RequestId
from sestina.policies.instances import Instances
from sestina.policies.ranking import Ranking
from sestina.policies.request_buffer import Entry
from sestina.policies.scheduler import Placement, place


class OracleScheduler:
    """Implements `Scheduler`; a request without a recorded length counts as if it reached its limit."""

    def __init__(self, *, chunk_tokens: int, affinity_requests: int = 0) -> None:
        self._chunk_tokens = chunk_tokens
        self._affinity_requests = affinity_requests
        self._waiting: dict[int, Entry] = {}
        self._numbers: dict[RequestId, int] = {}
        self._longest = Ranking()
        self._num_requests = 0

    def push(self, entry: Entry) -> None:
        """See `Scheduler.push`; what counts is the tokens that a request still has before it."""
        number = self._numbers.get(entry.id)
        if number is None:
            number = self._numbers[entry.id] = self._num_requests
            self._num_requests += 1
        self._waiting[number] = entry
        length = entry.max_new_tokens if entry.recorded_tokens is None else entry.recorded_tokens
        self._longest.put(number, entry.generated_tokens - length)

    def next(self, instances: Instances) -> Placement | None:
        """See `Scheduler.next`."""
        number = self._longest.first() if instances.num_open else None
        if number is None:
            return None
        placement = place(
            self._waiting[number],
            instances,
            chunk_tokens=self._chunk_tokens,
            affinity_requests=self._affinity_requests,
            reason="oracle",
        )
        if placement is not None:
            self._longest.drop(number)
            del self._waiting[number]
        return placement

    def upcoming(self, count: int) -> list[Entry]:
        """See `Scheduler.upcoming`."""
        return [self._waiting[number] for number in self._longest.least(count)]

    def finished(self, entry: Entry) -> None:
        """See `Scheduler.finished`."""
        self._numbers.pop(entry.id, None)  # one taken up complete has none
