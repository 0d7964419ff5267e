"""What a run came to, and how far a prediction is from it."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from sestina.core.errors import RunError
from sestina.core.units import Seconds
from sestina.telemetry.traces import read_requests, tail_start

Outturn: TypeAlias = Mapping[str, float]
"""By what is asked of a rollout, means over steps."""

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def outturn_of(finished_s: Sequence[Seconds]) -> Outturn:
    """Return what responses came to that had finished so long after their offer."""
    makespan_s = max(finished_s)
    completions = {f"{name} completion": float(np.quantile(finished_s, share)) for name, share in SHARES.items()}
    tail = (makespan_s - tail_start(finished_s)) / makespan_s
    return {"makespan": makespan_s, **completions, "tail share": tail}


def mean_of(outturns: Sequence[Outturn]) -> Outturn:
    """Return the mean of each value."""
    return {name: statistics.fmean(outturn[name] for outturn in outturns) for name in outturns[0]}


def spread_of(outturns: Sequence[Outturn]) -> Outturn:
    """Return how far runs are apart at most, over their mean."""
    mean = mean_of(outturns)
    return {
        name: (max(each[name] for each in outturns) - min(each[name] for each in outturns)) / mean[name]
        for name in mean
    }


def errors_of(predicted: Outturn, measured: Outturn) -> Outturn:
    """Return |predicted / measured - 1| of each value."""
    return {name: abs(predicted[name] / value - 1) for name, value in measured.items()}


def read_outturn(run_dir: Path) -> Outturn:
    """Return what a run came to, by its traces."""
    table = read_requests(run_dir)
    steps, offered_s, finished_s = (table[name].to_numpy() for name in ("step", "offered_s", "finished_s"))
    return mean_of([outturn_of((finished_s - offered_s)[steps == step].tolist()) for step in np.unique(steps)])


def check_lengths(run_dir: Path, recording: Path) -> None:
    """Raise RunError unless both runs have the same responses: what changes tokens makes no fair comparison."""
    lengths, recorded = (read_requests(folder)["response_tokens"].to_pylist() for folder in (run_dir, recording))
    if lengths != recorded:
        raise RunError(f"{run_dir}: its responses are not as long as those of {recording}")
