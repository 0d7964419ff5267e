"""Collects what is wrong with a file, so that one message names every bad line."""

from pathlib import Path

from sestina.core.errors import DataError

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
