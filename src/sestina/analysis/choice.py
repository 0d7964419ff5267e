"""Which figures say something of given runs, and why the others do not."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from sestina.analysis.figures.acceptance_by_place import acceptance_by_place
from sestina.analysis.figures.acceptance_by_siblings import acceptance_by_siblings
from sestina.analysis.figures.acceptance_over_time import acceptance_over_time
from sestina.analysis.figures.chunk_sizes import chunk_sizes
from sestina.analysis.figures.completion import completion
from sestina.analysis.figures.losses import losses
from sestina.analysis.figures.occupancy import occupancy
from sestina.analysis.figures.scheduling import scheduling
from sestina.analysis.figures.staleness import staleness
from sestina.analysis.figures.timeline import timeline
from sestina.analysis.figures.toggle_map import toggle_map
from sestina.analysis.picture import Picture
from sestina.analysis.run import Run
from sestina.core.errors import UserError
from sestina.rollout.calibration.file import read_calibration

TOGGLE_ACCEPTANCE = 0.5
"""Share of drafted tokens accepted that a map is drawn for: the plane has no axis left for it."""


def pictures_of(runs: Sequence[Run]) -> Iterator[Picture | str]:
    """Yield figures of the runs, and a line for each figure that has nothing to show."""
    sync = [run for run in runs if not run.config.overlaps]
    drafting = [run for run in runs if run.config.draft.source != "none"]
    yield from _whenever(runs, lambda: completion(runs), "completion")
    for run in runs:
        yield timeline(run)
    yield from _whenever(runs, lambda: occupancy(runs), "occupancy")
    yield from _whenever(
        sync, lambda: losses(sync), "losses: no run is synchronous, and only there a step is one's own"
    )
    yield from _swept(runs)
    for draw in (acceptance_by_place, acceptance_by_siblings, acceptance_over_time):
        yield from _whenever(drafting, lambda draw=draw: draw(drafting), f"{draw.__name__}: no run drafts")
    yield from chain.from_iterable(_toggles(run) for run in drafting)


def _swept(runs: Sequence[Run]) -> Iterator[Picture | str]:
    sync = [run for run in runs if not run.config.overlaps]
    schedulers = len({run.config.rollout.scheduler for run in sync})
    sizes = len({run.config.rollout.chunk_tokens for run in sync})
    bounds = [run for run in runs if run.config.run.mode == "async"]
    few = "fewer than two synchronous runs differ in"
    yield from _whenever(schedulers > 1, lambda: scheduling(sync), f"scheduling: {few} rollout.scheduler")
    yield from _whenever(sizes > 1, lambda: chunk_sizes(sync), f"chunk_sizes: {few} rollout.chunk_tokens")
    several = len({run.config.async_.max_staleness for run in bounds}) > 1
    yield from _whenever(
        several, lambda: staleness(bounds), "staleness: fewer than two asynchronous runs differ in async.max_staleness"
    )


def _toggles(run: Run) -> Iterator[Picture | str]:
    if run.config.draft.calibration is None:
        yield f"toggle_map: {run.name} has no draft.calibration"
        return
    try:
        calibration = read_calibration(run.config.draft.calibration)
        lengths = sorted({point.length for point in calibration.points if point.kind == "verify"})
        yield toggle_map(calibration, length=lengths[len(lengths) // 2], acceptance=TOGGLE_ACCEPTANCE)
    except UserError as error:
        yield f"toggle_map: {error}"


def _whenever(condition: object, draw: Callable[[], Picture], otherwise: str) -> Iterator[Picture | str]:
    if not condition:
        yield otherwise
        return
    try:
        yield draw()
    except UserError as error:
        yield str(error)
