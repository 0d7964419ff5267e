"""How many groups may be under way, so that none is trained on too late (AReaL, section 5.1, equation 3).

With B groups to a batch, trainer version i and bound eta, at every instant

    accepted + running <= (eta + i + 1) * B        which is        floor((N - 1) / B) <= i + eta

N counts every group that was ever started, the one asked about included, less those that were rejected or filtered: a
group that nobody trains on delays nobody. Staleness is the trainer's version when a group is consumed less the version
of its first token; consumption in order of admission then keeps it within eta (algorithms-and-numbers 2.4).

Groups start as fast as the bound and `max_running` allow, and no faster. eta = 0 is synchronous training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from sestina.core.units import Seconds, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessLimits:
    """Bounds, in groups; see the module's symbols."""

    max_staleness: int
    """eta, in versions"""
    batch_groups: int
    """B"""
    max_running: int
    """Groups that rollout takes at once."""

    def __post_init__(self) -> None:
        assert self.max_staleness >= 0, f"max_staleness {self.max_staleness}, at least 0"
        assert self.batch_groups >= 1, f"batch_groups {self.batch_groups}, at least 1"
        assert self.max_running >= 1, f"max_running {self.max_running}, at least 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOffered:
    """The data has `count` more groups."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEnded:
    """A running group is complete; `accepted` is False when it is rejected or filtered, and will not be trained on."""

    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDropped:
    """An accepted group will not be trained on after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPublished:
    """The trainer has consumed a batch and published its weights."""

    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Start `count` of the groups that were offered first."""

    count: int
    version: Version
    """The trainer's, at this moment: the earliest that their first tokens can be of."""


GateEvent: TypeAlias = GroupsOffered | GroupEnded | GroupDropped | VersionPublished


class StalenessGate:
    """A `Machine[GateEvent, Admit]`.

    Example:
        >>> gate = StalenessGate(StalenessLimits(max_staleness=1, batch_groups=4, max_running=6))
        >>> gate.handle(GroupsOffered(count=100), now=0.0)
        [Admit(count=6, version=0)]
        >>> [gate.handle(GroupEnded(accepted=True), now=1.0) for _ in range(3)]
        [[Admit(count=1, version=0)], [Admit(count=1, version=0)], []]
        >>> gate.handle(VersionPublished(version=1), now=2.0)
        [Admit(count=1, version=1)]
    """

    def __init__(self, limits: StalenessLimits, *, version: Version = 0, accepted: int = 0) -> None:
        """Begin, or go on from a checkpoint of `version` that keeps `accepted` finished groups not yet trained on.

        What was running is lost with its process and is offered again; every batch trained on counted B groups.
        """
        assert accepted >= 0, f"{accepted} accepted groups"
        self._limits = limits
        self._version = version
        self._offered = 0
        self._running = 0
        self._accepted = version * limits.batch_groups + accepted
        assert self._room >= 0, f"{accepted} groups not trained on exceed the bound of {limits}"

    @property
    def running(self) -> int:
        """Groups admitted and not ended."""
        return self._running

    @property
    def capacity(self) -> int:
        """Groups that may start at this moment, were they offered."""
        return max(0, min(self._limits.max_running - self._running, self._room))

    def handle(self, event: GateEvent, now: Seconds) -> Sequence[Admit]:
        """See `Machine.handle`."""
        match event:
            case GroupsOffered(count=count):
                self._offered += count
            case GroupEnded(accepted=accepted):
                assert self._running, "a group ended that was not running"
                self._running -= 1
                self._accepted += accepted
            case GroupDropped():
                assert self._accepted, "a group was dropped that was never accepted"
                self._accepted -= 1
            case VersionPublished(version=version):
                assert version > self._version, f"version {version} published after {self._version}"
                self._version = version
            case _:
                assert_never(event)
        return self._admit()

    def wake_at(self) -> Seconds | None:
        """See `Machine.wake_at`; time alone changes nothing here."""
        return None

    def wake(self, now: Seconds) -> Sequence[Admit]:
        """See `Machine.wake`."""
        return []

    @property
    def _room(self) -> int:
        """Groups that the bound still allows."""
        limits = self._limits
        return (limits.max_staleness + self._version + 1) * limits.batch_groups - self._accepted - self._running

    def _admit(self) -> list[Admit]:
        count = min(self._offered, self.capacity)
        if not count:
            return []
        self._offered -= count
        self._running += count
        return [Admit(count=count, version=self._version)]
