"""Where a rollout rank and its engine's drafter meet: histories go in, counts come out."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.rollout.speculation.tally import Tally

if TYPE_CHECKING:
    from sestina.rollout.speculation.shared import SharedIndex

TakeHistory = Callable[[GroupId, TokenArray, bytes], None]
"""Told a group, its prompt [tokens] and the record of the prompt's last answers; returns at once."""


class DraftDesk:
    """One per rank. A drafter puts what it has to offer here; a rank without one finds a desk without anything."""

    def __init__(self, shared: "SharedIndex | None" = None) -> None:
        self.shared = shared
        """The index that other instances' responses come to; None without draft servers."""
        self.counts: Counter[str] = Counter()
        """What became of drafting, by name; the drafter adds to it."""
        self.tally: Tally = Tally()
        self.take_history: TakeHistory | None = None
        """None where no history is drafted from."""
