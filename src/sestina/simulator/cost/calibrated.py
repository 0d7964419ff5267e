"""A step cost measured by launch/calibrate.py on the engine that it is of."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from sestina.core.errors import ConfigError
from sestina.models.shape import read_shape
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.rollout.calibration.file import calibration_for
from sestina.rollout.config import EngineConfig, TorchEngineConfig
from sestina.simulator.cost.step import EngineCost

Cost = TypeVar("Cost", StepCost, ServingCost)


def calibrated(path: Path, model: Path, engine: EngineConfig, *, pace: float = 1.0) -> tuple[EngineCost, float]:
    """Return what steps take, `pace` times what was measured, and the operations per second of matrix products.

    Raises ConfigError when the file is of another model, device or type, AbsentError when there is none.
    """
    if not isinstance(engine, TorchEngineConfig):
        raise ConfigError([
            f"sim.hardware.kind: 'calibrated' is not allowed with rollout.engine.kind '{engine.kind}'; only 'torch' is "
            "calibrated, on one device: its file says nothing of rollout.engine.tensor_parallel; choose a kind of GPU"
        ])  # fmt: skip
    file = calibration_for(path, read_shape(model), engine, "sim.hardware.path")
    cost, serving = _times(pace, file.cost), _times(pace, file.serving)
    made = EngineCost(
        step=cost, prefill_row_kv_s=cost.row_kv_s, max_step_tokens=engine.max_step_tokens, serving=serving
    )
    return made, file.gemm_flops


def _times(pace: float, cost: Cost) -> Cost:
    """Return coefficients, all of them seconds, so many times as large."""
    values = {field.name: getattr(cost, field.name) for field in fields(cost)}
    return replace(cost, **{name: value * pace for name, value in values.items() if value is not None})
