"""The same rollouts on real ranks and on emulated instances: does the emulation tell the truth?

One rank has a core to itself on any machine that has two. Three are asked to agree where there is a core for each and
one for the controller; elsewhere they share cores, which no emulated instance does. A first run records lengths, which
all others are held to, and real runs train at a rate that changes no weight: what siblings have in common is not
computed twice, so the tokens have to be the same too. Step 1 of a real run does not count: its trainer is being built
meanwhile.
"""

import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from sestina.bench.asked import at_most, stated
from sestina.bench.command import launch
from sestina.bench.turns import Say
from sestina.core.errors import RunError
from sestina.core.units import Seconds
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import read_metrics, series

RUNS = Path("runs/bench/ranks")
LIMIT_S: Seconds = 600.0
SCHEDULERS = ("group", "divided", "context")
TURNS: Mapping[int, int] = {1: 2, 3: 1}
"""Runs of each kind by the number of ranks, real and emulated in turn: a machine's speed drifts by several per cent."""
SETTINGS = (
    "+exp=quickstart",
    "run.steps=5",
    "run.checkpoint_every=0",
    "eval.every=0",
    'telemetry.wandb="off"',
    "rollout.engine.kv_capacity_tokens=4096",
    "rollout.affinity_requests=32",
    "trainer.optimizer.learning_rate=1e-30",
)
WITHIN = 0.1


def figures(say: Say) -> Iterator[Figure]:
    """Yield the makespans of each scheduler; raises RunError when a run fails or one of them draws other tokens."""
    for ranks, turns in TURNS.items():
        yield from _compared(ranks, _taken(ranks, turns, say))


def _taken(ranks: int, turns: int, say: Say) -> dict[str, tuple[Seconds, Seconds]]:
    """Return makespans, real and emulated, by scheduler."""
    recording = RUNS / f"recording-{ranks}"
    _run("simulate", recording, ranks, (), say)
    tokens = _tokens(recording)
    taken: dict[str, tuple[Seconds, Seconds]] = {}
    for scheduler in SCHEDULERS:
        changes = (f"rollout.scheduler={scheduler}", f"rollout.forced_lengths_from={recording}")
        found: dict[str, list[Seconds]] = {"train": [], "simulate": []}
        for kind in [*found] * turns:
            run_dir = RUNS / f"{kind}-{ranks}-{scheduler}"
            _run(kind, run_dir, ranks, changes, say)
            if not tokens or _tokens(run_dir) != tokens:
                raise RunError(f"{run_dir} has other tokens than {recording}")
            found[kind].append(_makespan(run_dir))
        taken[scheduler] = statistics.fmean(found["train"]), statistics.fmean(found["simulate"])
    return taken


def _compared(ranks: int, taken: Mapping[str, tuple[Seconds, Seconds]]) -> Iterator[Figure]:
    a_core_each = (os.cpu_count() or 1) > ranks
    asked = at_most if a_core_each else _stated
    for scheduler, (real_s, emulated_s) in taken.items():
        name = f"{ranks} real, {scheduler}"
        yield stated(f"{name}: makespan on real ranks, mean of steps", real_s, "s")
        yield stated(f"{name}: makespan emulated, mean of steps", emulated_s, "s")
        yield asked(f"{name}: emulated differs by", abs(emulated_s / real_s - 1), "of real", WITHIN)
    orders = {tuple(sorted(taken, key=lambda scheduler: taken[scheduler][side])) for side in (0, 1)}
    yield asked(f"{ranks} real: orders of schedulers, real and emulated", len(orders), "orders", 1)


def _stated(name: str, value: float, unit: str, _: float) -> Figure:
    return stated(name, value, unit)


def _makespan(run_dir: Path) -> Seconds:
    return statistics.fmean(seconds for step, seconds in series(read_metrics(run_dir), "perf/rollout_s") if step > 1)


def _tokens(run_dir: Path) -> list[float]:
    """Return each step's checksum."""
    return [checksum for _, checksum in series(read_metrics(run_dir), "rollout/tokens_crc32")]


def _run(kind: str, run_dir: Path, ranks: int, changes: tuple[str, ...], say: Say) -> None:
    launch(kind, run_dir, (*SETTINGS, f"rollout.num_instances={ranks}", *changes), say, limit_s=LIMIT_S)
