from dataclasses import replace

import pytest

from sestina.reproduction import areal
from sestina.reproduction.areal import (
    ALWAYS,
    MEAN_TOKENS,
    Setting,
    cells,
    config_of,
    fitted_step_s,
    generated_rate,
    simulated,
    trained_rate,
)


@pytest.fixture(scope="module")
def base():
    return Setting(step_s=fitted_step_s())


def test_the_mean_length_is_what_the_synchronous_run_states():
    assert pytest.approx(41.0, rel=1e-3) == MEAN_TOKENS * areal.RESPONSES * 250 / 128.7e3 / 3600


def test_a_setting_is_the_experiment_but_for_what_it_says(base):
    config = config_of(replace(base, longest=7168, eta=8, updates="drain"))
    assert (config.run.mode, config.rollout.scheduler, config.async_.max_staleness) == ("async", "group", 8)
    assert (config.sim.updates, config.sim.hardware.step_s) == ("drain", base.step_s)
    assert config.rollout.expected_tokens < MEAN_TOKENS == config_of(base).rollout.expected_tokens
    assert config.rollout.num_instances / config.trainer.num_ranks == 3
    assert (config.algorithm.group_size, config.sim.hardware.train_share) == (16, 0.4)


def test_the_parameter_is_fitted_to_the_synchronous_run_alone(base):
    assert 0 < base.step_s < 0.02
    lines = simulated(replace(base, steps=10))
    assert trained_rate(lines) * 8192 / base.responses == pytest.approx(128.7e3, rel=0.02)
    assert max(line["async/staleness_max"] for line in lines) == 0


def test_running_ahead_and_interrupting_are_worth_something(base):
    few = replace(base, steps=12)
    sync, ahead = (trained_rate(simulated(replace(few, eta=eta))) for eta in (0, 4))
    assert ahead > 1.5 * sync
    many = replace(few, instances=3, ranks=1, responses=256, eta=ALWAYS, steps=60, taken=12)
    rates = [generated_rate(simulated(replace(many, updates=updates))) for updates in ("interrupt", "drain")]
    assert rates[0] > rates[1]


@pytest.mark.slow
def test_every_value_stands_beside_a_simulated_one():
    said = []
    found = cells(said.append)
    assert len({(cell.table, cell.row) for cell in found}) == len(found) == 7 + 6 + 2 + 4
    [fitted] = [cell for cell in found if cell.kind == "fitted"]
    assert (fitted.table, fitted.published, abs(fitted.error) < 0.02) == ("figure 5c", 128.7, True)
    assert len(said) == 5
    by_eta = [cell.simulated for cell in found if cell.table == "figure 5c"]
    assert by_eta[0] < by_eta[1] < by_eta[2]
    assert all(cell.simulated > 0 for cell in found)
