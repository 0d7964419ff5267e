"""Which request runs next, and where: the Protocol every scheduler obeys."""

from typing import NamedTuple, Protocol

from sestina.core.units import InstanceId
from sestina.policies.events import PlacementReason
from sestina.policies.instances import Instances
from sestina.policies.request_buffer import Entry


class Placement(NamedTuple):
    """A decision: run up to `max_tokens` of a request on an instance. A tuple, since one is made for every decision."""

    entry: Entry
    instance: InstanceId
    max_tokens: int
    reason: PlacementReason


class Scheduler(Protocol):
    """Orders waiting requests and picks their instances; keeps what it learns, decides nothing else."""

    def push(self, entry: Entry) -> None:
        """A request waits: newly offered, or back from a chunk."""
        ...

    def next(self, instances: Instances) -> Placement | None:
        """Take the next request off the queue and place it; None when nothing waits or the next one fits nowhere.

        Mutates the queue only: the planner starts the request and reserves its room before it asks again.
        """
        ...

    def upcoming(self, count: int) -> list[Entry]:
        """Return up to `count` waiting requests in the order in which they would be placed; mutates nothing."""
        ...

    def finished(self, entry: Entry) -> None:
        """A request is complete; its length may inform the order of its siblings."""
        ...


def place(
    entry: Entry, instances: Instances, *, chunk_tokens: int, affinity_requests: int, reason: PlacementReason
) -> Placement | None:
    """Return where the next chunk of a request runs, with room for all it may produce; None if it fits nowhere.

    The chunk goes back to where its request ran last, if the loads differ by at most `affinity_requests` requests;
    otherwise to the least loaded instance (algorithms-and-numbers S-A, S-F).
    """
    max_tokens = min(chunk_tokens, entry.remaining_tokens)
    home = entry.instance if affinity_requests else None
    chosen = instances.choose(entry.context_tokens + max_tokens, home=home, within=affinity_requests)
    return None if chosen is None else Placement(entry=entry, instance=chosen, max_tokens=max_tokens, reason=reason)
