"""`make ablation-staleness`: what bounds of staleness do to learning, with the decoupled objective and without it.

The quickstart, emulated (docs/decisions/0023, 0028), in four minibatches a batch as in the paper: with a single one
the decoupled objective has no clip, since the policy in training is then the proximal one. The learning rate is one at
which eta = 0 learns the task in four minibatches; the quickstart's own, for one, unlearns it. Rollout is faster than
the trainer here, so that nearly every sample is as old as the bound lets it be. Naive: the ratio is clipped around the
policy that sampled (AReaL, table 2).
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sestina.bench.asked import at_least, stated
from sestina.bench.command import emulate_all
from sestina.bench.turns import Say
from sestina.core.units import Seconds
from sestina.telemetry.aside import written_aside
from sestina.telemetry.measurements import Figure
from sestina.telemetry.metrics import StepMetrics, series

SEEDS = (1, 2, 3)
RUNS = Path("runs/bench/staleness")
PICTURE = Path("out/measurements/staleness.png")
LIMIT_S: Seconds = 3600.0
STEPS = 40
SETTINGS = (
    "+exp=quickstart",
    "run.mode=async",
    f"run.steps={STEPS}",
    f"eval.every={STEPS}",
    "eval.num_prompts=512",
    "data.num_eval_prompts=512",
    'telemetry.wandb="off"',
    "sim.trainer_shares=1",
    "reward.num_workers=1",
    "algorithm.minibatches=4",
    "trainer.optimizer.learning_rate=1.0e-4",
)
ETAS = (0, 1, 4, 8, 16)
WAYS = {"decoupled": "recomputed", "naive": "behaviour"}
"""Of `algorithm.proximal`; with eta = 0 they are the same."""
JUDGED, MOST_LOST = 4, 0.03

Runs = Mapping[str, list[StepMetrics]]


def measure(say: Say, seeds: Sequence[int] = SEEDS) -> list[Figure]:
    """Train everything, and draw; raises RunError when a run fails."""
    jobs = {_name(way, eta, seed): _changes(way, eta, seed) for seed in seeds for way, eta in _cases()}
    runs = emulate_all(RUNS, jobs, say, limit_s=LIMIT_S)
    say(f"figure: {draw(runs, seeds, PICTURE)}")
    figures = [figure for way, eta in _cases() for figure in _describe(way, eta, runs, seeds)]
    before = statistics.mean(line[0] for line in (_accuracies(runs[_name("decoupled", 0, seed)]) for seed in seeds))
    lost = _mean("decoupled", JUDGED, runs, seeds) - _mean("decoupled", 0, runs, seeds)
    return [
        stated("before training: held-out accuracy", before, ""),
        *figures,
        at_least(f"decoupled, eta {JUDGED}: accuracy less that of eta 0", lost, "", -MOST_LOST),
    ]


def draw(runs: Runs, seeds: Sequence[int], path: Path) -> Path:
    """Write a PNG of accuracy over eta; returns its path."""
    # Imported here: only what draws needs matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415

    picture = Picture(figsize=(6, 4), dpi=150, layout="constrained")
    canvas, axes = FigureCanvasAgg(picture), picture.subplots()
    for way, style in zip(WAYS, (("#12395b", "-", "o"), ("#d9730d", "--", "s")), strict=True):
        _draw_way(axes, way, style, runs, seeds)
    axes.set_title(f"built-in task after {STEPS} steps; means of {len(seeds)} seeds and each of them")
    axes.set_xlabel("eta (versions)")
    axes.set_ylabel("held-out accuracy")
    axes.set_xticks(range(len(ETAS)), [str(eta) for eta in ETAS])
    axes.grid(visible=True, color="#e6e8eb")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        canvas.print_png(aside)
    return path


def _draw_way(
    axes: Any,  # noqa: ANN401 - untyped
    way: str,
    style: tuple[str, str, str],
    runs: Runs,
    seeds: Sequence[int],
) -> None:
    colour, line, marker = style
    found = [_finals(way, eta, runs, seeds) for eta in ETAS]
    axes.plot(range(len(ETAS)), [statistics.mean(each) for each in found], color=colour, linestyle=line, label=way)
    for place, each in enumerate(found):
        axes.scatter([place] * len(each), each, color=colour, marker=marker, s=12)


def _describe(way: str, eta: int, runs: Runs, seeds: Sequence[int]) -> Iterator[Figure]:
    name, finals = f"{way}, eta {eta}", _finals(way, eta, runs, seeds)
    lines = [runs[_name(way, eta, seed)] for seed in seeds]
    stale = [value for each in lines for _, value in series(each, "async/staleness_mean")]
    yield stated(f"{name}: held-out accuracy, mean of {len(seeds)} seeds", statistics.mean(finals), "")
    yield stated(f"{name}: lowest", min(finals), "")
    yield stated(f"{name}: highest", max(finals), "")
    yield stated(f"{name}: staleness, mean", statistics.mean(stale), "versions")


def _cases() -> list[tuple[str, int]]:
    return [(way, eta) for way in WAYS for eta in ETAS if eta or way == "decoupled"]


def _changes(way: str, eta: int, seed: int) -> tuple[str, ...]:
    return (*SETTINGS, f"async.max_staleness={eta}", f"algorithm.proximal={WAYS[way]}", f"seed={seed}")


def _finals(way: str, eta: int, runs: Runs, seeds: Sequence[int]) -> list[float]:
    return [_accuracies(runs[_name(way if eta else "decoupled", eta, seed)])[-1] for seed in seeds]


def _mean(way: str, eta: int, runs: Runs, seeds: Sequence[int]) -> float:
    return statistics.mean(_finals(way, eta, runs, seeds))


def _accuracies(lines: list[StepMetrics]) -> list[float]:
    return [value for _, value in series(lines, "eval/accuracy")]


def _name(way: str, eta: int, seed: int) -> str:
    return f"{way}-{eta}-{seed}"
