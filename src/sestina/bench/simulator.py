"""`make bench-simulator`: how long simulations of whole iterations take, and how that grows.

An iteration counts from the start of the world: drawing lengths, the planner, its journal and all rows and metrics, on
one core. Files of traces and pictures are apart. The growth curve is of the same workload with more groups and
instances, without a journal, each size in a process of its own, whose memory is the most it had.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sestina.bench.asked import at_most, stated
from sestina.bench.turns import Say, Span
from sestina.config.run import RunConfig
from sestina.config.sweep import runs_of
from sestina.core.errors import RunError
from sestina.policies.planner import SchedulerKind
from sestina.simulator.rollouts import driver_of, take_step
from sestina.simulator.world import world_of
from sestina.telemetry.journal import Journal
from sestina.telemetry.measurements import Figure

CONF = Path("conf")
ITERATION_S = 5.0
GROWN_S = 600.0
GROWN_BYTES = 8e9
TURNS = 3
LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One step of an experiment."""

    name: str
    overrides: tuple[str, ...]
    schedulers: tuple[SchedulerKind, ...]


ITERATIONS = (
    Iteration(
        name="Qwen2-VL-72B",
        # The paper's 16 instances: all of its 128 GPUs roll out.
        overrides=("+exp=seer_qwen72b", "cluster.gpus=256", "cluster.split.rollout=1", "cluster.split.trainer=1",
                   "rollout.num_instances=16", "trainer.num_ranks=128"),
        schedulers=("group", "divided", "context", "oracle"),
    ),
    Iteration(
        name="Kimi-K2",
        overrides=("+exp=seer_kimi_k2", "sim/hardware=h200"),
        schedulers=("group", "divided", "context", "oracle"),
    ),
)  # fmt: skip
SIZES = ((10_000, 41), (31_600, 129), (100_000, 410), (316_000, 1295), (1_000_000, 4096))
"""Requests and instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one simulation took and came to."""

    span: Span
    requests: int
    tokens: float
    chunks: float
    peak_bytes: float


def measure(
    say: Say, iterations: Sequence[Iteration] = ITERATIONS, sizes: Sequence[tuple[int, int]] = SIZES
) -> list[Figure]:
    """Take every figure."""
    figures: list[Figure] = []
    for iteration in iterations:
        figures += _iteration(iteration, say)
    return figures + _growth(sizes, say)


def simulated(config: RunConfig, scheduler: SchedulerKind, *, journal: bool) -> Taken:
    """Simulate the first step of a run."""
    assert config.sim is not None, "a bench of the simulator has a section sim"
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    world = world_of(config, config.sim)
    with tempfile.TemporaryDirectory() as folder, closing(Journal(Path(folder) / "journal.jsonl")) as file:
        responses, values = take_step(world, driver_of(world, scheduler, file if journal else None), 1)
    return Taken(
        span=Span(wall_s=time.perf_counter() - wall_s, cpu_s=time.process_time() - cpu_s),
        requests=len(responses),
        tokens=values["perf/rollout_tokens"],
        chunks=values["rollout/chunks"],
        peak_bytes=_peak_bytes(),
    )


def grown(requests: int, instances: int) -> RunConfig:
    """Return an iteration of the Qwen2-VL-72B workload, enlarged."""
    config = config_of(ITERATIONS[0])
    groups = requests // config.algorithm.group_size
    algorithm = dataclasses.replace(config.algorithm, batch_size=groups * config.algorithm.group_size)
    rollout = dataclasses.replace(config.rollout, num_instances=instances)
    return dataclasses.replace(config, algorithm=algorithm, rollout=rollout)


def config_of(iteration: Iteration) -> RunConfig:
    """Return its configuration, of one step."""
    (config,) = runs_of(["sim=simulated", *iteration.overrides, "run.steps=1"], CONF.absolute())
    return config


def _iteration(iteration: Iteration, say: Say) -> list[Figure]:
    config = config_of(iteration)
    figures: list[Figure] = []
    for scheduler in iteration.schedulers:
        turns = [simulated(config, scheduler, journal=True) for _ in range(TURNS)]
        by_cpu, by_wall = [turn.span.cpu_s for turn in turns], [turn.span.wall_s for turn in turns]
        name = f"{iteration.name}, {scheduler}"
        one = turns[0]
        say(f"{name}: {one.requests:,} responses, {one.tokens:,.0f} tokens, CPU {by_cpu}, wall {by_wall}")
        figures += [
            at_most(f"{name}: CPU time, median of {TURNS}", statistics.median(by_cpu), "s", ITERATION_S),
            stated(f"{name}: wall time, least", min(by_wall), "s"),
            stated(f"{name}: wall time, most", max(by_wall), "s"),
        ]
    return figures


def _growth(sizes: Sequence[tuple[int, int]], say: Say) -> list[Figure]:
    figures: list[Figure] = []
    for requests, instances in sizes:
        taken = _apart(requests, instances)
        each_us = 1e6 * taken["cpu_s"] / taken["chunks"]
        say(f"{requests:,} requests on {instances:,} instances: {taken}")
        name = f"growth, {requests:,} requests on {instances:,} instances"
        figures += [
            at_most(f"{name}: CPU time", taken["cpu_s"], "s", GROWN_S),
            stated(f"{name}: wall time", taken["wall_s"], "s"),
            stated(f"{name}: CPU time for each chunk", each_us, "us"),
            at_most(f"{name}: memory", taken["peak_bytes"], "bytes", GROWN_BYTES),
        ]
    return figures


def _apart(requests: int, instances: int) -> dict[str, float]:
    command = [sys.executable, "-m", "sestina.bench.simulator", str(requests), str(instances)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def _peak_bytes() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return 1024.0 * int(line.split()[1])
    raise RunError("/proc/self/status has no line VmHWM")


if __name__ == "__main__":
    found = simulated(grown(int(sys.argv[1]), int(sys.argv[2])), "context", journal=False)
    sys.stdout.write(
        json.dumps(dataclasses.asdict(found.span) | {"chunks": found.chunks, "peak_bytes": found.peak_bytes})
    )
