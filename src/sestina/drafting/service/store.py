"""The groups of one server: found, opened, grown within a memory bound, and forgotten after their time.

Their logs are all its state. It may be lost at any time: clients find a group of another epoch, or none, and bring
again what they have.
"""

from collections import Counter, OrderedDict

from sestina.core.units import Seconds
from sestina.drafting.service.settings import StoreSettings
from sestina.drafting.service.texts import GROWTH, RUN_BYTES, STREAM_BYTES, GroupTexts

SWEEP_S = 1.0
"""Between two looks for groups past their time."""


class DraftStore:
    """Groups by number, within `StoreSettings.memory_limit_bytes`."""

    def __init__(self, settings: StoreSettings, *, first_epoch: int) -> None:
        """`first_epoch` is above all epochs of the server's earlier life, such as the time in nanoseconds."""
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self.num_bytes = 0
        self._next_epoch = first_epoch
        self._groups: OrderedDict[int, GroupTexts] = OrderedDict()
        self._sweep_at: Seconds = 0.0

    @property
    def num_groups(self) -> int:
        """Groups held."""
        return len(self._groups)

    @property
    def groups(self) -> list[int]:
        """Groups held, the longest unused first."""
        return list(self._groups)

    def find(self, group: int, now: Seconds) -> GroupTexts | None:
        """Return a group that is held, which begins its time to live anew."""
        held = self._groups.get(group)
        if held is not None:
            held.used_s = now
            self._groups.move_to_end(group)
        return held

    def open(self, group: int, ttl_s: Seconds, prompt: bytes, now: Seconds) -> GroupTexts | None:
        """Hold a group that is not held; None when there is no room."""
        held = GroupTexts(self._next_epoch, ttl_s, prompt)
        if not self._make_room(held.num_bytes, now):
            return None
        self._next_epoch += 1
        held.used_s = now
        self._groups[group] = held
        self.num_bytes += held.num_bytes
        return held

    def extend(self, held: GroupTexts, request: int, offset: int, tokens: memoryview, now: Seconds) -> bool:
        """Extend a response (see GroupTexts.extend); False when there is no room."""
        if not self._make_room(STREAM_BYTES + RUN_BYTES + int(len(tokens) * GROWTH), now):
            return False
        before = held.num_bytes
        held.extend(request, offset, tokens)
        self.num_bytes += held.num_bytes - before
        return True

    def sweep(self, now: Seconds) -> None:
        """Forget the groups that nobody asked for in their time to live; does nothing more often than SWEEP_S."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_S
        for group in [group for group, held in self._groups.items() if now - held.used_s > held.ttl_s]:
            self._forget(group)
            self.counts["expired_groups"] += 1

    def _make_room(self, num_bytes: int, now: Seconds) -> bool:
        if self.num_bytes + num_bytes <= self.settings.memory_limit_bytes:
            return True
        while self._groups and self.num_bytes + num_bytes > self.settings.memory_limit_bytes:
            group, oldest = next(iter(self._groups.items()))
            if now - oldest.used_s < self.settings.idle_s:
                break
            self._forget(group)
            self.counts["evicted_groups"] += 1
        fits = self.num_bytes + num_bytes <= self.settings.memory_limit_bytes
        self.counts["refused_for_memory"] += not fits
        return fits

    def _forget(self, group: int) -> None:
        self.num_bytes -= self._groups.pop(group).num_bytes
