"""A step cost measured by launch/calibrate.py on the engine that it is of."""

from pathlib import Path

from sestina.core.errors import ConfigError
from sestina.models.shape import read_shape
from sestina.rollout.calibration.file import cost_for, read_calibration
from sestina.rollout.config import EngineConfig, TorchEngineConfig
from sestina.simulator.cost.step import EngineCost


def calibrated(path: Path, model: Path, engine: EngineConfig) -> tuple[EngineCost, float]:
    """Return what steps take, and the operations per second of matrix products.

    Raises ConfigError when the file is of another model, device or type, AbsentError when there is none.
    """
    if not isinstance(engine, TorchEngineConfig):
        raise ConfigError([
            f"sim.hardware.kind: 'calibrated' is not allowed with rollout.engine.kind '{engine.kind}'; only 'torch' is "
            "calibrated, on one device: its file says nothing of rollout.engine.tensor_parallel; choose a kind of GPU"
        ])  # fmt: skip
    cost, file = cost_for(path, read_shape(model), engine), read_calibration(path)
    made = EngineCost(
        step=cost, prefill_row_kv_s=cost.row_kv_s, max_step_tokens=engine.max_step_tokens, serving=file.serving
    )
    return made, file.gemm_flops
