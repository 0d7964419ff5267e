import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from sestina.config.load import load
from sestina.core.errors import AbsentError, ConfigError
from sestina.models.shape import read_shape
from sestina.policies.drafting.calibration import VERSION, CalibratedOn, Calibration
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.rollout.calibration.file import engine_of, write_calibration
from sestina.rollout.pages import PAGE_TOKENS
from sestina.simulator.run import simulate
from sestina.simulator.world import world_of
from sestina.telemetry.metrics import read_metrics
from tests.unit.config.helpers import changed

ARGV = ("sim=simulated", "sim/hardware=calibrated", "+exp=quickstart")
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


def config_of(folder, *changes):
    given = (
        "telemetry.wandb='off'",
        "eval.every=0",
        "run.steps=2",
        f"dir={folder / 'run'}",
        f"sim.hardware.path={folder / 'c.json'}",
    )
    return load(changed(*given, *changes, argv=ARGV))


@pytest.fixture
def calibrated(tmp_path):
    config = config_of(tmp_path)
    engine = engine_of(read_shape(Path(config.model.path)), config.rollout.engine)
    calibration = Calibration(
        version=VERSION,
        engine=engine,
        taken=MACHINE,
        gemm_flops=1e10,
        cost=COST,
        serving=SERVING,
        residuals=(),
        left_out=(),
        points=(),
        joins=(),
    )
    write_calibration(calibration, tmp_path / "c.json")
    return calibration


def test_a_measured_engine_is_simulated_without_weights(calibrated, tmp_path):
    config = config_of(tmp_path)
    world = world_of(config, config.sim)
    assert (world.cost.step, world.cost.serving) == (COST, SERVING)
    assert world.limits.page_tokens == PAGE_TOKENS
    assert not any(term.startswith("hardware") for term in world.uncalibrated)
    simulate(config, Console(quiet=True))
    lines = [line.values for line in read_metrics(config.dir)]
    assert [line["perf/uncalibrated/trainer"] for line in lines] == [1, 1]
    assert all(line["perf/rollout_s"] > 0 for line in lines)


def test_a_pace_is_of_every_step(calibrated, tmp_path):
    spans = []
    for name, pace in (("alone", 1.0), ("run", 1.5)):
        config = config_of(tmp_path, f"sim.hardware.pace={pace}", f"dir={tmp_path / name}", "sim.reward_s=0")
        simulate(config, Console(quiet=True))
        spans.append([line.values["perf/rollout_s"] for line in read_metrics(config.dir)])
    assert spans[1] == pytest.approx([1.5 * span for span in spans[0]])
    with pytest.raises(ConfigError, match=r"sim\.hardware\.pace: -1 is not allowed; .*above 0"):
        config_of(tmp_path, "sim.hardware.pace=-1")


def test_a_calibration_of_another_engine_is_refused(calibrated, tmp_path):
    other = dataclasses.replace(calibrated.engine, num_layers=99)
    write_calibration(dataclasses.replace(calibrated, engine=other), tmp_path / "c.json")
    config = config_of(tmp_path)
    with pytest.raises(ConfigError, match=r"sim\.hardware\.path: .*c\.json: taken with num_layers 99"):
        world_of(config, config.sim)
    (tmp_path / "c.json").unlink()
    with pytest.raises(AbsentError, match=r"sim\.hardware\.path: .*c.json: no such file or directory; .* writes one"):
        world_of(config, config.sim)


def test_a_preset_of_a_gpu_is_no_cpu(tmp_path):
    config = load(changed("telemetry.wandb='off'", "eval.every=0", argv=("sim=simulated", "+exp=quickstart")))
    with pytest.raises(
        ConfigError, match=r"sim.hardware.kind: 'gpu' \(H800\) is not allowed with rollout.engine.device"
    ):
        world_of(config, config.sim)
