"""Cells as a file, for figures that need not predict them again."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from sestina.core.errors import DataError
from sestina.reproduction.cell import Cell
from sestina.telemetry.aside import written_aside


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Write cells as JSON, in place of an older file; raises DataError when the folder does not exist."""
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no such folder")
    with written_aside(path) as aside:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(cells), indent=1) + b"\n")


def read_cells(path: Path) -> list[Cell]:
    """Return what `write_cells` wrote; raises DataError on a file that is missing, another, or empty."""
    try:
        cells = msgspec.json.decode(path.read_bytes(), type=list[Cell])
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; launch/reproduce.py --cells {path} writes it") from None
    except msgspec.MsgspecError as error:
        raise DataError(f"{path}: not a file of predicted cells: {error}") from None
    if not cells:
        raise DataError(f"{path}: holds no cells")
    return cells
