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
    def of(cls, beginnings: Sequence[Beginning], lengths: Sequence[int], where: str) -> "Siblings | None":
        """Return what a group's beginnings say; None when nobody has noted them, or no two begin alike.

        `lengths`: of the responses. Raises DataError, which names `where`, for what no texts come to.
        """
        if not any(map(any, beginnings)):
            return None
        order = sorted(range(len(beginnings)), key=lambda number: beginnings[number])
        if [beginnings[number].text_rank for number in order] != list(range(len(order))):
            ranks = [each.text_rank for each in beginnings]
            raise DataError(
                f"{where}: text_rank is {ranks}; allowed are 0 to {len(ranks) - 1}, each once, or 0 for all"
            )
        by_rank = [beginnings[number].common_tokens for number in order]
        for rank, common in enumerate(by_rank):
            most = min(lengths[number] for number in order[rank - 1 : rank + 1]) if rank else 0
            if common > most:
                raise DataError(f"{where}: common_tokens is {common} at text_rank {rank}; allowed are at most {most}")
        return cls(tuple(beginnings), _common(by_rank, order)) if any(by_rank) else None

    def most(self, one: int) -> int:
        """Return how many tokens a response begins with as any other does."""
        return max(self.common[one])


def _common(by_rank: Sequence[int], order: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return what every two have in common: the least from behind the first of them, in order, up to the second."""
    table = [[0] * len(order) for _ in order]
    for rank, one in enumerate(order):
        least = by_rank[rank + 1] if rank + 1 < len(order) else 0
        for later in range(rank + 1, len(order)):
            least = min(least, by_rank[later])
            other = order[later]
            table[one][other] = table[other][one] = least
    return tuple(map(tuple, table))
