"""The contract every event-driven policy obeys: events and time in, commands out (docs/decisions/0001)."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from sestina.core.units import Seconds

E_contra = TypeVar("E_contra", contravariant=True)
C_co = TypeVar("C_co", covariant=True)


class Machine(Protocol[E_contra, C_co]):
    """A deterministic state machine with no I/O, no clock and no threads.

    Equal sequences of `handle` and `wake` calls give equal commands.
    """

    def handle(self, event: E_contra, now: Seconds) -> Sequence[C_co]:
        """Absorb one event that happened at `now`; return what to do, in order."""
        ...

    def wake_at(self) -> Seconds | None:
        """Return when `wake` is next due, or None when time alone changes nothing."""
        ...

    def wake(self, now: Seconds) -> Sequence[C_co]:
        """Run what time has made due; `now` is never before `wake_at()`."""
        ...
