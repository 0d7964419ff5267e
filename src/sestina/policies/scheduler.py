"""Which request runs next, and where: the Protocol every scheduler obeys."""

from dataclasses import dataclass
from typing import Literal, Protocol

from sestina.core.units import InstanceId
from sestina.policies.instances import Instances
from sestina.policies.request_buffer import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A decision: run up to `max_tokens` of a request on an instance."""

    entry: Entry
    instance: InstanceId
    max_tokens: int
    reason: Literal["bound", "least-loaded"]


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

    def finished(self, entry: Entry) -> None:
        """A request is complete; its length may inform the order of its siblings."""
        ...
