"""The same rollouts on real ranks and on emulated instances: does the emulation tell the truth?

One rank has a core to itself on any machine that has two. Three are asked to agree where there is a core for each and
one for the controller; elsewhere they share cores, which no emulated instance does. A first run records lengths, which
all others are held to. Step 1 of a real run does not count: its trainer is being built meanwhile.
"""

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sestina.bench.asked import at_most, stated
from sestina.bench.command import launch
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import read_metrics, series

RUNS = Path("runs/bench/ranks")
LIMIT_S: Seconds = 600.0
SCHEDULERS: Mapping[int, tuple[str, ...]] = {1: ("divided",), 3: ("group", "divided", "context")}
"""To compare, by the number of ranks."""
SETTINGS = (
    "+exp=quickstart",
    "run.steps=4",
    "run.checkpoint_every=0",
    "eval.every=0",
    'telemetry.wandb="off"',
    "rollout.engine.kv_capacity_tokens=4096",
    "rollout.affinity_requests=32",
)
WITHIN = 0.1


def figures(say: Say) -> Iterator[Figure]:
    """Yield the makespans of each scheduler; raises RunError when a run fails or two orders differ in tokens."""
    taken = {ranks: _taken(ranks, schedulers, say) for ranks, schedulers in SCHEDULERS.items()}
    for ranks, of_schedulers in taken.items():
        for scheduler, (real_s, emulated_s) in of_schedulers.items():
            yield from _compared(f"{ranks} real, {scheduler}", ranks, real_s, emulated_s)
    most = taken[max(taken)]
    orders = [sorted(most, key=lambda scheduler: most[scheduler][side]) for side in (0, 1)]
    yield at_most("orders of schedulers, real and emulated", len({*map(tuple, orders)}), "orders", 1)


def _taken(ranks: int, schedulers: Sequence[str], say: Say) -> dict[str, tuple[Seconds, Seconds]]:
    """Return makespans, real and emulated."""
    recording = RUNS / f"recording-{ranks}"
    _run("simulate", recording, ranks, (), say)
    return {
        scheduler: (
            _makespan("train", scheduler, recording, ranks, say),
            _makespan("simulate", scheduler, recording, ranks, say),
        )
        for scheduler in schedulers
    }


def _compared(name: str, ranks: int, real_s: Seconds, emulated_s: Seconds) -> Iterator[Figure]:
    a_core_each = (os.cpu_count() or 1) > ranks
    yield stated(f"{name}: makespan on real ranks, median of steps", real_s, "s")
    yield stated(f"{name}: makespan emulated, median of steps", emulated_s, "s")
    differs = f"{name}: emulated differs by", abs(emulated_s / real_s - 1), "of real"
    yield at_most(*differs, WITHIN) if a_core_each else stated(*differs)


def _makespan(kind: str, scheduler: str, recording: Path, ranks: int, say: Say) -> Seconds:
    run_dir = RUNS / f"{kind}-{ranks}-{scheduler}"
    _run(kind, run_dir, ranks, (f"rollout.scheduler={scheduler}", f"rollout.forced_lengths_from={recording}"), say)
    return statistics.median(seconds for step, seconds in series(read_metrics(run_dir), "perf/rollout_s") if step > 1)


def _run(kind: str, run_dir: Path, ranks: int, changes: tuple[str, ...], say: Say) -> None:
    launch(kind, run_dir, (*SETTINGS, f"rollout.num_instances={ranks}", *changes), say, limit_s=LIMIT_S)
