"""Collects the prompts of a file and what is wrong with it, so that one message names every bad line."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from sestina.core.errors import DataError
from sestina.data.prompt import RawPrompt

_Row = TypeVar("_Row")

MAX_REPORTED = 10
"""Lines named in one message; the count of the rest is still given."""


class Problems:
    """Bad lines of one file; raise them together with `check`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: list[str] = []

    def add(self, line: int, reason: str) -> None:
        """Remember that `line` (from 1) is bad."""
        self._found.append(f"{self._path}:{line}: {reason}")

    def check(self, num_prompts: int) -> None:
        """Raise DataError if a line was bad or the file holds no prompt."""
        if self._found:
            more = len(self._found) - MAX_REPORTED
            shown = self._found[:MAX_REPORTED] + ([f"and {more} more bad lines"] if more > 0 else [])
            raise DataError("\n".join(shown))
        if not num_prompts:
            raise DataError(f"{self._path}: holds no prompt")


def collect(
    path: Path, rows: Iterable[tuple[int, _Row]], parse: Callable[[_Row, str, int], RawPrompt]
) -> list[RawPrompt]:
    """Parse numbered rows; `parse` gets a row, where it stands and its number, and raises ValueError for a bad one.

    Raises DataError naming every bad row, ids that stand twice included.
    """
    prompts: dict[str, RawPrompt] = {}
    problems = Problems(path)
    for number, row in rows:
        try:
            prompt = parse(row, f"{path}:{number}", number)
        except ValueError as error:
            problems.add(number, str(error))
            continue
        if prompt.id in prompts:
            problems.add(number, f"id '{prompt.id}' stands already in {prompts[prompt.id].where}")
        prompts[prompt.id] = prompt
    problems.check(len(prompts))
    return list(prompts.values())
