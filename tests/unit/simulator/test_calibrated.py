import dataclasses

import pytest
from rich.console import Console

from sestina.config.load import load
from sestina.core.errors import AbsentError, ConfigError
from sestina.rollout.calibration.file import write_calibration
from sestina.rollout.pages import PAGE_TOKENS
from sestina.simulator.acceptance import drafting_of
from sestina.simulator.run import simulate
from sestina.simulator.world import world_of
from sestina.telemetry.metrics import read_metrics
from tests.unit.config.helpers import changed
from tests.unit.simulator.calibrations import COST, SERVING, calibrated_for

ARGV = ("sim=simulated", "sim/hardware=calibrated", "+exp=quickstart")


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
    return calibrated_for(config_of(tmp_path), tmp_path / "c.json")


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


def test_drafts_are_cut_to_what_the_engine_has_rows_for(calibrated, tmp_path):
    """A draft is found whole or not at all: of half of the steps one of 4 tokens, of which all are right or none."""
    table = "sim.acceptance={draft_tokens: 4, siblings: [0], tokens_per_step: [3.0], drafted_per_step: [2.0]}"
    drafts = ("draft.source=grouped", "draft.length=fixed", "draft.toggle=always", "draft.max_tokens=4")
    config = config_of(tmp_path, *drafts, table)
    found = drafting_of(config, config.sim)
    assert (found.lengths, found.choices, found.drafted) == ((0, 1, 2, 3, 4), (4,), (0.5,))
    assert found.rates[0] == pytest.approx([1.0, 1.5, 2.0, 2.5, 3.0])
    adaptive = config_of(tmp_path, *drafts[:1], "draft.length=mba", "draft.toggle=batch", "draft.max_tokens=4", table)
    assert drafting_of(adaptive, adaptive.sim).choices == (0, 1, 2, 3, 4)


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
