"""The quickstart as its users run it, for three seeds: does it learn, how long does it take, do the two engines agree.

Also two short runs that differ in scheduler, instances and chunk size only, whose tokens and weights must be equal.
"""

import hashlib
from pathlib import Path

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.command import launch
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import StepMetrics, read_metrics, series

SEEDS = (1, 2, 3)
RUNS = Path("runs/bench")
LIMIT_S: Seconds = 900.0
SHORT = ("run.steps=2", "eval.every=0", 'telemetry.wandb="off"')
VARIANTS = {
    "divided, 3 instances, chunks of 16": ("rollout.chunk_tokens=16",),
    "divided, 1 instance, chunks of 256": ("rollout.chunk_tokens=256", "rollout.num_instances=1"),
    "group, 3 instances": ("rollout=group",),
    "group, 1 instance": ("rollout=group", "rollout.num_instances=1"),
}


def measure(say: Say) -> list[Figure]:
    """Run everything; raises RunError when a run fails."""
    figures = [figure for seed in SEEDS for figure in _learns(seed, say)]
    return [*figures, *_lossless(say)]


def _learns(seed: int, say: Say) -> list[Figure]:
    name = f"seed {seed}"
    run_dir = RUNS / f"quickstart-{seed}"
    wall_s = _run(run_dir, (f"seed={seed}",), say)
    lines = read_metrics(run_dir)
    accuracy = [value for _, value in series(lines, "eval/accuracy")]
    lengths = [value for _, value in series(lines, "eval/correct_response_len/mean")]
    worst = max(value for _, value in series(lines, "train/train_rollout_logprob_abs_diff"))
    return [
        at_most(f"{name}: whole run", wall_s, "s", 360),
        at_most(f"{name}: held-out accuracy after the warm start", accuracy[0], "", 0.55),
        stated(f"{name}: held-out accuracy at the end", accuracy[-1], ""),
        at_least(f"{name}: gain", accuracy[-1] - accuracy[0], "", 0.2),
        stated(f"{name}: mean length of correct answers after the warm start", lengths[0], "tokens"),
        at_least(f"{name}: the same at the end, over that", lengths[-1] / lengths[0], "x", 1.0),
        at_most(f"{name}: largest mean |logprob(trainer) - logprob(rollout)| of a step", worst, "", 1e-4),
    ]


def _lossless(say: Say) -> list[Figure]:
    seen: list[tuple[list[StepMetrics], str]] = []
    for number, (name, overrides) in enumerate(VARIANTS.items()):
        say(name)
        run_dir = RUNS / f"variant-{number}"
        _run(run_dir, (*SHORT, *overrides), say)
        weights = (run_dir / "checkpoints/step_000002/model/model.safetensors").read_bytes()
        seen.append((read_metrics(run_dir), hashlib.sha256(weights).hexdigest()))
    hashes = {tuple(series(lines, "rollout/tokens_crc32")) for lines, _ in seen}
    return [
        stated("variants of scheduler, instances and chunk size", len(seen), ""),
        at_most("different token hashes among them", len(hashes), "", 1),
        at_most("different weights after two steps", len({weights for _, weights in seen}), "", 1),
    ]


def _run(run_dir: Path, overrides: tuple[str, ...], say: Say) -> Seconds:
    return launch("train", run_dir, ("+exp=quickstart", *overrides), say, limit_s=LIMIT_S)
