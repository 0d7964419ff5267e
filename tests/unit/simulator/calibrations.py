"""A calibration of no machine: figures of about this engine's size."""

from pathlib import Path

from sestina.config.run import RunConfig
from sestina.models.shape import read_shape
from sestina.policies.drafting.calibration import VERSION, CalibratedOn, Calibration
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.rollout.calibration.file import engine_of, write_calibration

COST = StepCost(
    weights_s=4e-4,
    kv_token_s=1e-8,
    row_s=6e-6,
    row_kv_s=1e-8,
    plain_sequence_s=2e-5,
    verify_sequence_s=4e-5,
    draft_token_s=1e-6,
    step_s=3e-4,
)
SERVING = ServingCost(chunk_s=4e-5, text_token_s=1e-7, join_s=2e-5, row_s=1e-5, row_kv_s=3e-8)
MACHINE = CalibratedOn(machine="m", accelerator=None, logical_cores=1, memory_gib=1.0, commit=None, date="")


def calibrated_for(config: RunConfig, path: Path) -> Calibration:
    """Write a calibration of a run's engine, and return it."""
    calibration = Calibration(
        version=VERSION,
        engine=engine_of(read_shape(config.model.path), config.rollout.engine),
        taken=MACHINE,
        gemm_flops=1e10,
        cost=COST,
        serving=SERVING,
        residuals=(),
        left_out=(),
        points=(),
        joins=(),
    )
    write_calibration(calibration, path)
    return calibration
