"""Which beginnings the responses of a group have in common: keys and values of these are computed and held once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sestina.core.errors import DataError
from sestina.telemetry.beginnings import Beginning


@dataclass(frozen=True, slots=True)
class Siblings:
    """Of one group."""

    ranks: tuple[int, ...]
    """Of each response, in lexicographic order of their tokens."""
    common_tokens: tuple[int, ...]
    """By rank: with how many tokens one begins as the one before it does."""

    @classmethod
    def of(cls, beginnings: Sequence[Beginning], where: str) -> "Siblings | None":
        """Return what a group's beginnings say; None when nobody has noted them, or no two begin alike.

        Raises DataError, which names `where`, when places are not 0, 1, 2 and so on.
        """
        ranks = tuple(each.text_rank for each in beginnings)
        if any(ranks) and sorted(ranks) != list(range(len(ranks))):
            raise DataError(
                f"{where}: text_rank is {list(ranks)}; allowed are 0 to {len(ranks) - 1}, each once, or 0 for all"
            )
        if not any(each.common_tokens for each in beginnings):
            return None
        return cls(ranks, tuple(each.common_tokens for each in sorted(beginnings)))

    def beginning(self, one: int) -> Beginning:
        """Return what is noted of a response."""
        return Beginning(self.ranks[one], self.common_tokens[self.ranks[one]])

    def most(self, one: int) -> int:
        """Return how many tokens a response begins with as any other does."""
        rank = self.ranks[one]
        return max(self.common_tokens[rank : rank + 2])

    def common(self, one: int, other: int) -> int:
        """Return how many tokens two responses, by their numbers, begin with alike."""
        low, high = sorted((self.ranks[one], self.ranks[other]))
        return min(self.common_tokens[low + 1 : high + 1])
