"""What steps of a run are foreseen to take: a short simulation of which nothing is left but its means."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from rich.console import Console

from sestina.config.run import RunConfig
from sestina.core.units import Seconds
from sestina.simulator.rollouts import roll_out
from sestina.simulator.world import World

_ROUNDS = 3
"""Times eta + 2 steps, simulated where steps overlap: the first ones get ahead, the last have nothing left to begin.

Pipelined, eta is 1.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Means over the simulated steps."""

    step_s: Seconds
    rollout_s: Seconds
    tail_s: Seconds | None
    """Of rollout: after 90 % of the responses had finished; None where rollouts overlap, and have no end."""
    train_s: Seconds
    weights_s: Seconds
    tokens_per_s: float
    """Generated, per second of the whole step."""
    preemptions: float


def shortened(config: RunConfig) -> RunConfig:
    """Return a run of no more steps than a prediction simulates: one, where each is like the others."""
    staleness = config.async_.max_staleness if config.run.mode == "async" else 1
    ahead = _ROUNDS * (staleness + 2)
    steps = 1 if config.run.mode == "sync" else min(ahead, config.run.steps)
    run, telemetry = dataclasses.replace(config.run, steps=steps), dataclasses.replace(config.telemetry, wandb="off")
    return dataclasses.replace(config, run=run, telemetry=telemetry)


def predict(world: World) -> Prediction:
    """Simulate every step of a world's run under its own scheduler.

    Where steps overlap, the middle third counts. What ends first is trained on first, so that its batches have fewer
    tokens than a whole run's; they are taken for as much longer.
    """
    with TemporaryDirectory(prefix="sestina-prediction-") as folder:
        rollouts = roll_out(world, world.config.rollout.scheduler, Path(folder), Console(quiet=True))
    steps = _middle(rollouts.steps) if world.overlaps else rollouts.steps
    tokens = _mean(rollouts.steps, "perf/rollout_tokens")
    longer = tokens / _mean(steps, "perf/rollout_tokens")
    rollout_s, train_s = (longer * _mean(steps, f"perf/{part}_s") for part in ("rollout", "train"))
    weights_s = _mean(steps, "perf/weights_s")
    rest_s = _mean(steps, "perf/step_s") - (rollout_s + train_s) / longer
    step_s = rollout_s + train_s + rest_s
    tails_s = [line["rollout/tail_share"] * line["perf/rollout_s"] for line in steps]
    return Prediction(
        step_s=step_s,
        rollout_s=rollout_s,
        tail_s=None if world.overlaps else fmean(tails_s),
        train_s=train_s,
        weights_s=weights_s,
        tokens_per_s=tokens / step_s,
        preemptions=_mean(steps, "rollout/preemptions"),
    )


def _mean(steps: Sequence[dict[str, float]], name: str) -> float:
    return fmean(line[name] for line in steps)


def _middle(steps: Sequence[dict[str, float]]) -> Sequence[dict[str, float]]:
    third = len(steps) // _ROUNDS
    return steps[third : len(steps) - third]
