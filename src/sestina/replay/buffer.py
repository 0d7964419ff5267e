"""Which groups make the next batch (AReaL, section 5.1: oldest first, every sample once).

A group is open from its admission until it is trained on, filtered or dropped. Its age at version i is i less the
version it was admitted at; its first token is of that version or a later one, so that its staleness is at most its age.

Batches of B ended groups are taken in order of admission. A group that is still running is passed over, as long as
every open group can still be trained on in time: with r of them before it and the next batch at version n, it will be
trained on at version n + floor(r / B) at the latest. `wait` refuses a batch after which that would exceed the bound;
`drop` takes it, and gives up the groups that have become too old.
"""

from collections.abc import Iterable

from sestina.core.ids import GroupId
from sestina.core.units import Version
from sestina.replay.config import Overdue


class ReplayBuffer:
    """Open groups in order of admission.

    Example:
        >>> buffer = ReplayBuffer(batch_groups=2, max_staleness=1, overdue="wait")
        >>> for group in range(4):
        ...     buffer.admit(group, version=0)
        >>> for group in (1, 2, 3):
        ...     buffer.end(group)
        >>> buffer.take(version=0)
        [1, 2]
        >>> buffer.take(version=1) is None
        True
        >>> buffer.end(0)
        >>> buffer.take(version=1)
        [0, 3]
    """

    def __init__(self, *, batch_groups: int, max_staleness: int, overdue: Overdue) -> None:
        self._batch_groups = batch_groups
        self._max_staleness = max_staleness
        self._overdue = overdue
        self._born: dict[GroupId, Version] = {}
        """Of open groups, in order of admission."""
        self._ended: set[GroupId] = set()
        self.num_dropped = self.num_filtered = 0

    @property
    def born(self) -> dict[GroupId, Version]:
        """Versions at which the open groups were admitted, in that order."""
        return dict(self._born)

    @property
    def num_ended(self) -> int:
        """Groups that wait for the trainer."""
        return len(self._ended)

    @property
    def num_running(self) -> int:
        """Open groups that have not ended."""
        return len(self._born) - len(self._ended)

    def admit(self, group: GroupId, version: Version) -> None:
        """Open a group."""
        assert group not in self._born, f"group {group} is open already"
        self._born[group] = version

    def end(self, group: GroupId) -> None:
        """An open group is complete and rewarded."""
        assert group in self._born, f"group {group} ended and is not open"
        assert group not in self._ended, f"group {group} ended twice"
        self._ended.add(group)

    def filter(self, group: GroupId) -> None:
        """Close a group that teaches nothing."""
        self._close([group])
        self.num_filtered += 1

    def take(self, version: Version) -> list[GroupId] | None:
        """Close and return the batch that the trainer of `version` takes, in order of admission; None: it has to wait.

        Call `drop` before, at every version.
        """
        batch = [group for group in self._born if group in self._ended][: self._batch_groups]
        if len(batch) < self._batch_groups or (self._overdue == "wait" and not self._leaves_time(batch, version)):
            return None
        oldest = max(version - self._born[group] for group in batch)
        assert oldest <= self._max_staleness, f"a group of age {oldest} in a batch, at most {self._max_staleness}"
        self._close(batch)
        return batch

    def drop(self, version: Version) -> list[tuple[GroupId, bool]]:
        """Close and return the groups that are too old for a batch at `version`, and whether they had ended."""
        late = [
            (group, group in self._ended) for group, born in self._born.items() if version - born > self._max_staleness
        ]
        self._close(group for group, _ in late)
        self.num_dropped += len(late)
        return late

    def reopen(self) -> None:
        """Have the groups that had ended end again: they wait for the next batch like the others."""
        self._ended.clear()

    def clear(self) -> None:
        """Close every group, and count them as dropped."""
        self.num_dropped += len(self._born)
        self._close(list(self._born))

    def _leaves_time(self, batch: list[GroupId], version: Version) -> bool:
        taken = set(batch)
        left = [born for group, born in self._born.items() if group not in taken]
        latest = (version + 1 + rank // self._batch_groups for rank in range(len(left)))
        return all(at - born <= self._max_staleness for at, born in zip(latest, left, strict=True))

    def _close(self, groups: Iterable[GroupId]) -> None:
        for group in groups:
            del self._born[group]
            self._ended.discard(group)
