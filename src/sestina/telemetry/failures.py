"""What ranks leave when they fail, one file each, for whoever says how the run ended."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from sestina.telemetry.aside import written_aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A rank that ended early, and knew why."""

    rank: int
    """In the world."""
    name: str
    host: str
    exit_code: int
    why: str
    """One line."""
    at: float
    """Unix seconds."""


def write_failure(folder: Path, failure: Failure) -> None:
    """Write one rank's file; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(folder / f"{failure.rank}.json") as aside:
        aside.write_bytes(msgspec.json.encode(failure))


def read_failures(folder: Path) -> list[Failure]:
    """Return what ranks have left, first failure first; passes over files that are half written."""
    found: list[Failure] = []
    for path in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Failure))
        except msgspec.MsgspecError:
            continue
    return sorted(found, key=lambda failure: failure.at)
