"""What is predicted, by paper."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import sestina.reproduction.efficientrollout.cells as efficientrollout
import sestina.reproduction.rhymerl.cells as rhymerl
import sestina.reproduction.seer.cells as seer
from sestina.reproduction import areal
from sestina.reproduction.cell import Cell

Say: TypeAlias = Callable[[str], None]

PAPERS: Mapping[str, Callable[[Say], list[Cell]]] = {
    "areal": areal.cells,
    "efficientrollout": efficientrollout.cells,
    "rhymerl": rhymerl.cells,
    "seer": seer.cells,
}


def cells_of(names: Sequence[str], say: Say) -> list[Cell]:
    """Predict every value of the named papers; `say` hears how it goes."""
    return [cell for name in names for cell in PAPERS[name](say)]
