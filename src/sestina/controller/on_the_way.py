"""Which chunks an instance had not been given yet when it said how it was."""

from collections import deque

from sestina.core.ids import RequestId
from sestina.core.records import KvUse
from sestina.core.units import InstanceId
from sestina.policies.events import KvReport


class OnTheWay:
    """Chunks reach an instance in the order in which they are sent, and it counts them."""

    def __init__(self) -> None:
        self._sent: dict[InstanceId, deque[RequestId]] = {}
        self._arrived: dict[InstanceId, int] = {}

    def send(self, instance: InstanceId, request: RequestId) -> None:
        """A chunk leaves for an instance."""
        self._sent.setdefault(instance, deque()).append(request)

    def report(self, instance: InstanceId, use: KvUse) -> KvReport:
        """Return what the planner is told of an instance's account; forgets what had arrived by then."""
        sent = self._sent.setdefault(instance, deque())
        for _ in range(use.submitted - self._arrived.get(instance, 0)):
            sent.popleft()
        self._arrived[instance] = use.submitted
        return KvReport(peak_tokens=use.peak_tokens, capacity_tokens=use.capacity_tokens, on_the_way=tuple(sent))
