"""What is predicted, by paper, and all of it on as many cores as there are."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TypeAlias

import sestina.reproduction.efficientrollout.cells as efficientrollout
import sestina.reproduction.rhymerl.cells as rhymerl
import sestina.reproduction.seer.cells as seer
from sestina.core.units import Seconds
from sestina.reproduction import areal
from sestina.reproduction.cell import Cell
from sestina.reproduction.seer.tasks import TASKS

Say: TypeAlias = Callable[[str], None]
Part: TypeAlias = Callable[[Say], list[Cell]]
"""Some values of a paper, which rest on no others."""

PAPERS: Mapping[str, Sequence[Part]] = {
    "areal": (areal.cells,),
    "efficientrollout": (efficientrollout.cells,),
    "rhymerl": (rhymerl.cells,),
    "seer": tuple(partial(seer.cells, task) for task in TASKS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Values, and what they took."""

    cells: list[Cell]
    cpu_s: Seconds


def predicted(names: Sequence[str], say: Say) -> Predicted:
    """Predict every value of the named papers, each part in a process; `say` hears in each how it goes.

    It has to be a function that another process can be given. What a part raises is raised here.
    """
    parts = [part for name in names for part in PAPERS[name]]
    workers = min(len(parts), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(_timed, say), parts))
    return Predicted(cells=[cell for each in found for cell in each.cells], cpu_s=sum(each.cpu_s for each in found))


def _timed(say: Say, part: Part) -> Predicted:
    began_s = time.process_time()
    cells = part(say)
    return Predicted(cells=cells, cpu_s=time.process_time() - began_s)
