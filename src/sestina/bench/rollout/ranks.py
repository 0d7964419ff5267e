"""The same rollouts on three real ranks and on three emulated instances: does the emulation tell the truth?

A first run records lengths, which all others are held to. Step 1 of a real run does not count: its trainer is being
built meanwhile.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

from sestina.bench.asked import at_most, stated
from sestina.bench.command import launch
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import read_metrics, series

RUNS = Path("runs/bench/ranks")
LIMIT_S: Seconds = 600.0
SCHEDULERS = ("group", "divided", "context")
SETTINGS = (
    "+exp=quickstart",
    "run.steps=4",
    "run.checkpoint_every=0",
    "eval.every=0",
    'telemetry.wandb="off"',
    "rollout.num_instances=3",
    "rollout.engine.kv_capacity_tokens=4096",
    "rollout.affinity_requests=32",
)
WITHIN = 0.1


def figures(say: Say) -> Iterator[Figure]:
    """Yield the makespans of each scheduler; raises RunError when a run fails or two orders differ in tokens."""
    recording = RUNS / "recording"
    _run("simulate", recording, (), say)
    taken = {
        scheduler: tuple(_makespan(kind, scheduler, recording, say) for kind in ("train", "simulate"))
        for scheduler in SCHEDULERS
    }
    for scheduler, (real_s, emulated_s) in taken.items():
        name = f"three instances, {scheduler}"
        yield stated(f"{name}: makespan on real ranks, median of steps", real_s, "s")
        yield stated(f"{name}: makespan emulated, median of steps", emulated_s, "s")
        yield at_most(f"{name}: emulated differs by", abs(emulated_s / real_s - 1), "of real", WITHIN)
    orders = [sorted(SCHEDULERS, key=lambda scheduler: taken[scheduler][side]) for side in (0, 1)]
    yield at_most("three instances: orders of schedulers, real and emulated", len({*map(tuple, orders)}), "orders", 1)


def _makespan(kind: str, scheduler: str, recording: Path, say: Say) -> Seconds:
    run_dir = RUNS / f"{kind}-{scheduler}"
    _run(kind, run_dir, (f"rollout.scheduler={scheduler}", f"rollout.forced_lengths_from={recording}"), say)
    return statistics.median(seconds for step, seconds in series(read_metrics(run_dir), "perf/rollout_s") if step > 1)


def _run(kind: str, run_dir: Path, changes: tuple[str, ...], say: Say) -> None:
    launch(kind, run_dir, (*SETTINGS, *changes), say, limit_s=LIMIT_S)
