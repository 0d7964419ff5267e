"""Search the configurations that a user's GPUs allow, and say which are best, by how much, and what holds them back."""

import dataclasses
from pathlib import Path

from rich.console import Console

from sestina.config.change import as_overrides
from sestina.config.run import RunConfig
from sestina.config.sim import SimConfig
from sestina.controller.preflight import inspect
from sestina.core.errors import ConfigError
from sestina.simulator.advice.axes import axes_of
from sestina.simulator.advice.descent import Point, descend
from sestina.simulator.advice.judge import Judge
from sestina.simulator.advice.table import Advised, lines_of, table_of, write_advice
from sestina.simulator.prediction import Prediction, predict
from sestina.simulator.world import World

_BEST = 5

_WAITS = 0.03
"""Share of a step above which a trainer counts as waiting, where steps overlap."""

_WIDENED, _RELIEF = 2, 0.1
"""KV room is what holds rollout back if so many times of it shorten it by such a share."""


def advise(config: RunConfig, sim: SimConfig, folder: Path, console: Console) -> None:
    """Search, print and write advice for a run; raises ConfigError where nothing is allowed, with the terms at fault.

    What speaks against the run itself, such as its prompts, is raised before anything is simulated.
    """
    judge, own = _searched(config, sim, console)
    found = _ranked(judge)
    if not found:
        raise ConfigError([f"no point is valid: {judge.reasons[term]}" for term in sorted(judge.reasons)])
    advised = [_advised(judge, point, own) for point in found[:_BEST]]
    write_advice(advised, folder)
    for line in _left_out(judge):
        console.print(line, highlight=False)
    best = judge.world(found[0])
    console.print(table_of(advised, best.uncalibrated if best else ()))
    for line in lines_of(advised):
        console.print(line, highlight=False)


def _searched(config: RunConfig, sim: SimConfig, console: Console) -> tuple[Judge, Point]:
    """Return who has judged all points of the search, and the point that is the user's own."""
    found, quiet = inspect(dataclasses.replace(config, sim=None)), dataclasses.replace(sim, advise=False)
    if found.wrong:
        raise ConfigError(list(found.wrong))
    config = dataclasses.replace(found.config, sim=quiet)
    axes = axes_of(config)
    judge = Judge(config, quiet, axes, most=sim.advise_points, say=lambda line: console.print(line, highlight=False))
    own = tuple(axis.own for axis in axes)
    descend(axes, own, allowed=lambda point: judge.world(point) is not None, cost=judge.cost)
    return judge, own


def _ranked(judge: Judge) -> list[Point]:
    """Return points, best first; of those that a change makes no difference to, the one with fewest changes."""
    points = sorted(judge.predictions, key=lambda point: (judge.predictions[point].step_s, len(judge.changes(point))))
    return list({judge.predictions[point]: point for point in reversed(points)}.values())[::-1]


def _advised(judge: Judge, point: Point, own: Point) -> Advised:
    prediction, world, before = judge.predictions[point], judge.world(point), judge.predictions.get(own)
    assert world is not None, f"point {point} was simulated without a world"
    return Advised(
        overrides=as_overrides(judge.changes(point)),
        prediction=prediction,
        gain=before and before.step_s / prediction.step_s,
        bottleneck=_bottleneck(prediction, world),
    )


def _bottleneck(prediction: Prediction, world: World) -> str:
    """Return what takes most of a step; where steps overlap, rollout if the trainer waits for it."""
    parts = {"trainer": prediction.train_s, "weights": prediction.weights_s}
    if prediction.tail_s is not None:
        parts |= {"rollout tail": prediction.tail_s, "rollout": prediction.rollout_s - prediction.tail_s}
    waits = prediction.tail_s is None and prediction.rollout_s > _WAITS * prediction.step_s
    largest = "rollout" if waits else max(parts, key=parts.__getitem__)
    return "KV room" if largest == "rollout" and _is_short_of_room(prediction, world) else largest


def _is_short_of_room(prediction: Prediction, world: World) -> bool:
    limits = dataclasses.replace(world.limits, kv_capacity_tokens=_WIDENED * world.limits.kv_capacity_tokens)
    widened = predict(dataclasses.replace(world, limits=limits))
    return widened.rollout_s <= (1 - _RELIEF) * prediction.rollout_s


def _left_out(judge: Judge) -> list[str]:
    """Say how many points are missing, and why."""
    lines = [f"points left out: {judge.num_refused}"] if judge.num_refused else []
    for term, count in judge.refusals.most_common():
        lines.append(f"  {count}: {judge.reasons[term]}")
    if judge.passed_over:
        lines.append(f"points passed over: {len(judge.passed_over)}, as training alone takes longer than the best step")
    if judge.spent:
        lines.append(f"the search ended after {len(judge.predictions)} points (sim.advise_points)")
    return lines
