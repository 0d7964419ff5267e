"""Measures the steps of a run's engine on this machine, fits what they cost, and writes the file that a run can use."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from sestina.config.run import RunConfig
from sestina.core.errors import ConfigError
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.policies.drafting.calibration import (
    VERSION,
    CalibratedOn,
    Calibration,
    StepPoint,
    residuals_of,
)
from sestina.policies.drafting.fit import fit, fit_serving
from sestina.policies.drafting.serving import JoinPoint
from sestina.rollout.calibration.file import engine_of, write_calibration
from sestina.rollout.calibration.grid import cells_of, joins_of
from sestina.rollout.calibration.passes import Passes
from sestina.rollout.calibration.products import flops_of, row_seconds
from sestina.rollout.calibration.survey import survey
from sestina.rollout.config import TorchEngineConfig
from sestina.telemetry.measurements import commit_of, this_machine

OUT = Path("out/calibration")

Say = Callable[[str], object]


def calibrate(config: RunConfig, name: str, say: Say) -> Path:
    """Return the file written, out/calibration/NAME.json.

    Raises a UserError for an engine that cannot be calibrated or a model that is amiss.
    """
    engine = config.rollout.engine
    if not isinstance(engine, TorchEngineConfig):
        raise ConfigError([f"rollout.engine.kind: '{engine.kind}' cannot be calibrated; allowed is 'torch'"])
    torch.set_num_threads(1)
    shape = read_shape(config.model.path)
    points, joins, left_out = _points(config, engine, say)
    row_s = row_seconds(shape, torch.device(engine.device), getattr(torch, engine.dtype))
    cost = fit(points, row_s=row_s)
    serving = fit_serving(joins, cost)
    calibration = Calibration(
        version=VERSION,
        engine=engine_of(shape, engine),
        taken=_taken(engine),
        gemm_flops=flops_of(shape) / row_s,
        cost=cost,
        serving=serving,
        residuals=residuals_of(cost, points, serving, joins),
        left_out=tuple(left_out),
        points=tuple(points),
        joins=tuple(joins),
    )
    path = OUT / f"{name}.json"
    write_calibration(calibration, path)
    _report(calibration, say)
    return path


def _points(
    config: RunConfig, engine: TorchEngineConfig, say: Say
) -> tuple[list[StepPoint], list[JoinPoint], list[str]]:
    """Return all points measured, and those left out."""
    shape, context = read_shape(config.model.path), config.data.max_prompt_tokens + config.rollout.max_new_tokens
    cells, left_out = cells_of(engine, max_context_tokens=context)
    if not cells or not cells[0].lengths:
        raise ConfigError([f"rollout.engine: no room for the smallest point of the grid; {left_out[:1]}"])
    passes = Passes(engine, shape, read_weights(config.model.path, shape), max_context_tokens=context)
    joins = joins_of(cells, engine, max_context_tokens=context)
    return *survey(passes, cells, joins, say=say), left_out


def _taken(engine: TorchEngineConfig) -> CalibratedOn:
    machine = this_machine()
    return CalibratedOn(
        machine=machine.cpu,
        accelerator=torch.cuda.get_device_name() if engine.device == "cuda" else None,
        logical_cores=machine.logical_cores,
        memory_gib=machine.memory_gib,
        commit=commit_of(Path.cwd()),
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _report(calibration: Calibration, say: Say) -> None:
    for point in calibration.points:
        size = f"batch {point.batch} of {point.sequence_tokens} tokens"
        say(f"{size}: {point.kind} {point.length or ''}{' ' if point.length else ''}{1e3 * point.seconds:.3f} ms")
    for join in calibration.joins:
        texts = f"{join.chunks} x {join.text_tokens} tokens, {join.cached_tokens} cached"
        say(f"batch {join.batch} of {join.sequence_tokens} tokens: {texts}, join: {1e3 * join.seconds:.3f} ms")
    for reason in calibration.left_out:
        say(f"left out: {reason}")
    for residual in calibration.residuals:
        which = "held-out" if residual.held_out else "fitted"
        say(
            f"{residual.kind}: {residual.num_points} {which} points, off by {residual.median:.1%} in the median, "
            f"{residual.largest:.1%} at most"
        )
