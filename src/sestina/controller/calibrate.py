"""Measures the steps of a run's engine on this machine, fits what they cost, and writes the file that a run can use."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch

from sestina.config.run import RunConfig
from sestina.core.errors import ConfigError
from sestina.core.units import Seconds
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.policies.drafting.calibration import (
    VERSION,
    CalibratedOn,
    Calibration,
    StepKind,
    StepPoint,
    residuals_of,
)
from sestina.policies.drafting.fit import fit
from sestina.rollout.calibration.file import engine_of, write_calibration
from sestina.rollout.calibration.grid import cells_of
from sestina.rollout.calibration.lookups import lookup_seconds
from sestina.rollout.calibration.passes import Passes
from sestina.rollout.calibration.products import flops_of, row_seconds
from sestina.rollout.config import TorchEngineConfig
from sestina.telemetry.measurements import commit_of, this_machine

OUT = Path("out/calibration")
HELD_OUT_EVERY = 4
"""One point in so many is not fitted to."""

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
    points, left_out = _points(config, engine, say)
    row_s = row_seconds(shape, torch.device(engine.device), getattr(torch, engine.dtype))
    cost = fit(points, row_s=row_s)
    calibration = Calibration(
        version=VERSION,
        engine=engine_of(shape, engine),
        taken=_taken(engine),
        gemm_flops=flops_of(shape) / row_s,
        cost=cost,
        residuals=residuals_of(cost, points),
        left_out=tuple(left_out),
        points=tuple(points),
    )
    path = OUT / f"{name}.json"
    write_calibration(calibration, path)
    _report(calibration, say)
    return path


def _points(config: RunConfig, engine: TorchEngineConfig, say: Say) -> tuple[list[StepPoint], list[str]]:
    """Return all points measured, and those left out."""
    shape, context = read_shape(config.model.path), config.data.max_prompt_tokens + config.rollout.max_new_tokens
    cells, left_out = cells_of(engine, max_context_tokens=context)
    if not cells or not cells[0].lengths:
        raise ConfigError([f"rollout.engine: no room for the smallest point of the grid; {left_out[:1]}"])
    passes = Passes(engine, shape, read_weights(config.model.path, shape), max_context_tokens=context)
    points: list[StepPoint] = []
    for cell in cells:
        steps, lookups = passes.seconds(cell), lookup_seconds(cell, vocab_size=shape.vocab_size)
        for kind, length, seconds in _kinds(steps, lookups):
            held_out = len(points) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
            size = {"batch": cell.batch, "sequence_tokens": cell.sequence_tokens, "length": length}
            points.append(StepPoint(kind=kind, **size, seconds=seconds, held_out=held_out))
        drafted = "".join(f", {g} drafts {1e3 * (steps[g] + lookups[g]):.3f} ms" for g in cell.lengths)
        say(f"batch {cell.batch} of {cell.sequence_tokens} tokens: plain {1e3 * steps[0]:.3f} ms{drafted}")
    return points, left_out


def _kinds(steps: dict[int, Seconds], lookups: dict[int, Seconds]) -> Iterator[tuple[StepKind, int, Seconds]]:
    for length, seconds in steps.items():
        yield ("verify" if length else "plain"), length, seconds
    for length, seconds in lookups.items():
        yield "draft", length, seconds


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
    for reason in calibration.left_out:
        say(f"left out: {reason}")
    for residual in calibration.residuals:
        which = "held-out" if residual.held_out else "fitted"
        say(
            f"{residual.kind}: {residual.num_points} {which} points, off by {residual.median:.1%} in the median, "
            f"{residual.largest:.1%} at most"
        )
