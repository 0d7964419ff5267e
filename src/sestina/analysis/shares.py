"""Shares that drafters have counted, from the metrics of runs."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.run import Run
from sestina.core.errors import DataError
from sestina.telemetry.metrics import series


def shares_of(runs: Sequence[Run], prefix: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return means over steps of `spec/SOURCE/{prefix}{name}`, by run and source.

    Raises DataError when no run has any.
    """
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        logged = {name for line in run.metrics for name in line.values}
        sources = sorted({name.split("/")[1] for name in logged if name.startswith("spec/") and f"/{prefix}" in name})
        for source in sources:
            steps = {name: series(run.metrics, f"spec/{source}/{prefix}{name}") for name in names}
            found[f"{run.name}, {source}"] = {
                name: float(np.mean([value for _, value in values])) for name, values in steps.items() if values
            }
    if not found:
        raise DataError(f"no run among {', '.join(run.name for run in runs)} has drafted (spec/*/{prefix}*)")
    return found
