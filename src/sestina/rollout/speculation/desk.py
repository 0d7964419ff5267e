"""Where a rollout rank and its engine's drafter meet: histories go in, counts come out."""

from collections.abc import Callable

from sestina.core.ids import GroupId
from sestina.core.units import TokenArray
from sestina.rollout.speculation.tally import Tally

TakeHistory = Callable[[GroupId, TokenArray, bytes], None]
"""Told a group, its prompt [tokens] and the record of the prompt's last answers; returns at once."""


class DraftDesk:
    """One per rank. A drafter puts what it has to offer here; a rank without one finds a desk without anything."""

    def __init__(self) -> None:
        self.tally: Tally = Tally()
        self.take_history: TakeHistory | None = None
        """None where no history is drafted from."""
