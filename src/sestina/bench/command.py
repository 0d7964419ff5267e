"""Launched commands, as users call them."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sestina.bench.turns import Say
from sestina.core.errors import DeadlineError, RunError
from sestina.core.units import Seconds
from sestina.telemetry.metrics import StepMetrics, read_metrics


def launch(kind: str, run_dir: Path, changes: Sequence[str], say: Say, *, limit_s: Seconds) -> Seconds:
    """Run launch/KIND.py into a fresh directory; returns the time of the whole command, raises RunError if it fails."""
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [sys.executable, f"launch/{kind}.py", f"dir={run_dir}", *changes]
    say(" ".join(command[1:]))
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"{' '.join(command)} to end", limit_s) from None
    if done.returncode:
        raise RunError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - start


def emulate_all(
    runs: Path, jobs: Mapping[str, Sequence[str]], say: Say, *, limit_s: Seconds
) -> dict[str, list[StepMetrics]]:
    """Emulate a run for each name, as many at once as there are cores; returns their metrics."""

    def emulate(name: str) -> list[StepMetrics]:
        run_dir = runs / name
        launch("simulate", run_dir, jobs[name], say, limit_s=limit_s)
        return read_metrics(run_dir)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(jobs, pool.map(emulate, jobs), strict=True))
