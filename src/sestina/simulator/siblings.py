"""Which beginnings the responses of a group have in common: keys and values of these are computed and held once."""

from collections.abc import Sequence
from dataclasses import dataclass

from sestina.core.errors import DataError
from sestina.telemetry.beginnings import Beginning


@dataclass(frozen=True, slots=True)
class Siblings:
    """Of one group."""

    beginnings: tuple[Beginning, ...]
    """Of each response, by its number."""
    common: tuple[tuple[int, ...], ...]
    """[n, n]: with how many tokens two responses, by their numbers, begin alike; 0 for one and itself"""

    @classmethod
    def of(cls, beginnings: Sequence[Beginning], where: str) -> "Siblings | None":
        """Return what a group's beginnings say; None when nobody has noted them, or no two begin alike.

        Raises DataError, which names `where`, when places are not 0, 1, 2 and so on.
        """
        ranks = [each.text_rank for each in beginnings]
        if any(ranks) and sorted(ranks) != list(range(len(ranks))):
            raise DataError(
                f"{where}: text_rank is {ranks}; allowed are 0 to {len(ranks) - 1}, each once, or 0 for all"
            )
        if not any(each.common_tokens for each in beginnings):
            return None
        by_rank = [each.common_tokens for each in sorted(beginnings)]
        common = tuple(tuple(_least(by_rank, one, other) for other in ranks) for one in ranks)
        return cls(tuple(beginnings), common)

    def most(self, one: int) -> int:
        """Return how many tokens a response begins with as any other does."""
        return max(self.common[one])


def _least(by_rank: Sequence[int], one: int, other: int) -> int:
    """Return what two have in common: the least from behind the first of them up to the second."""
    low, high = sorted((one, other))
    return min(by_rank[low + 1 : high + 1], default=0)
