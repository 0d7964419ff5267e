from statistics import fmean

import numpy as np
import pytest

from sestina.core.errors import ConfigError
from sestina.core.ids import RequestId
from sestina.policies.drafting.aimd import AimdLengths
from sestina.policies.group import EvenScheduler
from sestina.policies.planner import RolloutPlanner
from sestina.reproduction.rhymerl import published, ranks
from sestina.reproduction.rhymerl.cells import cells
from sestina.reproduction.rhymerl.drafting import histospec, rate_of, windowed
from sestina.reproduction.rhymerl.ranks import ranks_of
from sestina.reproduction.rhymerl.systems import Systems
from sestina.reproduction.rhymerl.worlds import LONGEST, MEAN_TOKENS, Fitted, Setting, fitted, world_of_setting
from sestina.simulator.rollouts import driver_of, take_step
from tests.unit.policies.drafting.test_lengths import chosen, outcome_of
from tests.unit.policies.drafting.worlds import view_of

PART = 8
"""An eighth of the paper's workload: 6 instances, 2 ranking groups."""
FIT = Fitted(between=0.6, load=8)


def test_the_mean_length_is_that_of_the_middle_of_the_measured_steps():
    assert pytest.approx(1000 + 9000 * 50 / 320, abs=1) == MEAN_TOKENS


def test_a_setting_is_the_experiment_but_for_what_it_says():
    setting = Setting(model="32B", mode="async", longest=8192, eta=8, steps=4, part=4)
    config = world_of_setting(setting, FIT).config
    assert (config.run.mode, config.run.steps, config.async_.max_staleness) == ("async", 4, 8)
    assert (config.rollout.num_instances, config.rollout.ranking_groups) == (6, 4)
    assert config.algorithm.batch_size == 48 * 8 // 4 * 16
    assert config.rollout.expected_tokens < MEAN_TOKENS
    drawn = world_of_setting(Setting(part=PART), FIT).config.sim.workload
    assert (drawn.between, drawn.within, drawn.seen_before) == (0.6, 0.28 * 0.6, True)
    assert drawn.drift**published.GROWTH_STEPS > 10, "lengths grow"


def test_the_trainer_takes_what_the_baseline_leaves_it():
    world = world_of_setting(Setting(part=PART), FIT)
    driver = driver_of(world, "group", None, RolloutPlanner(EvenScheduler(seed=0)))
    _, values = take_step(world, driver, 1)
    share = values["perf/rollout_s"] / (values["perf/rollout_s"] + values["perf/train_s"])
    assert share == pytest.approx(published.ROLLOUT_SHARE, abs=1e-3)


def test_what_is_fitted_is_what_leaves_the_baseline_idle_as_published():
    fit, outcome = fitted(PART)
    off = abs(outcome.idle - published.IDLE) + abs(outcome.spread - published.EARLIEST_IDLE)
    assert off < 0.3
    assert fit.between in (0.6, 1.0, 1.4)


def test_the_window_in_the_mean_is_that_of_the_policy():
    rate, view = rate_of(0.72), view_of(400)
    rng, policy, drafted, accepted = np.random.default_rng(1), AimdLengths(num_slots=400), [], []
    for step in range(300):
        windows = chosen(policy, view).lengths.copy()
        runs = np.minimum(rng.geometric(1 - rate, len(windows)) - 1, windows)
        policy.learn(outcome_of(view, windows, runs))
        if step >= 50:
            drafted.append(windows.mean())
            accepted.append(runs.mean())
    mean = windowed(rate)
    assert (mean.drafted, mean.accepted) == pytest.approx((fmean(drafted), fmean(accepted)), rel=0.02)
    assert mean.accepted / mean.drafted == pytest.approx(0.72)


def test_better_drafts_yield_more_and_none_are_taken_where_they_do_not_pay():
    yields = [histospec(acceptance, 0.93).rates[0][1] for acceptance in (0.65, 0.72, 0.79)]
    assert yields == sorted(yields)
    assert histospec(0.72, 0.93).lengths[0] == 0, "a plain step can be chosen"
    assert (windowed(0.0).drafted, windowed(0.0).accepted) == (2, 0)
    assert (windowed(1.0).drafted, windowed(1.0).accepted) == (32, 32)


def test_what_follows_on_nothing_of_the_last_epoch_takes_steps_without_drafts():
    step, drafts = windowed(rate_of(0.72)), histospec(0.72, 0.93)
    with_draft = 93 / (1 + step.accepted)
    assert drafts.rates[0] == (1.0, pytest.approx(100 / (with_draft + 7)))
    assert drafts.drafts(1, [5]) * (with_draft + 7) == pytest.approx(step.drafted * with_draft)
    accepted = (drafts.rates[0][1] - 1) / drafts.drafts(1, [5])
    assert accepted == pytest.approx(0.72), "of what is drafted, as published"
    assert histospec(0.72, 0.75).rates[0][1] < drafts.rates[0][1] < histospec(0.72, 1.0).rates[0][1]
    assert histospec(0.72, 1.0).rates[0][1] == pytest.approx(1 + step.accepted)


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_an_acceptance_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match="acceptance: .* is not allowed; between 0 and 1"):
        histospec(share, 0.93)


def test_each_part_is_worth_something():
    systems = Systems(fit=FIT, part=PART)
    verl, histopipe, everything = systems.verl(), systems.histopipe(two_tier=True), systems.rhymerl()
    assert verl < histopipe < everything
    assert systems.areal(1) < systems.areal(8)
    assert Systems(fit=FIT, longest=8192, part=PART).verl() > verl, "shorter tails"


def test_ranks_change_as_in_the_column_that_they_were_taken_from():
    eight, sixteen = (ranks_of(0.6, groups, num_prompts=2048) for groups in (8, 16))
    assert sixteen.accurate == pytest.approx(published.RANKS[16][0], abs=0.02)
    assert eight.accurate > sixteen.accurate
    assert all(published.RANKS[n][1] / 2 < found.migrated < 4 * published.RANKS[n][1]
               for n, found in ((8, eight), (16, sixteen)))  # fmt: skip
    same = ranks_of(0.0, 8, num_prompts=64)
    assert (same.accurate, same.migrated) == (1.0, 0.0)


def test_what_outgrows_the_medians_of_its_group_is_counted_as_migrated():
    before = [[10] * 16, [20] * 16]
    now = [[10] * 15 + [12], [20] * 14 + [21, 30]]
    assert ranks._leaving([0], before, now, beta=1.1) == [RequestId(0, 15)]
    assert ranks._leaving([1], before, now, beta=1.1) == [RequestId(1, 15)]
    assert ranks._leaving([0, 1], before, now, beta=1.6) == []
    crowd = [[10] * 13 + [30] * 3, before[1]]
    assert len(ranks._leaving([0], before, crowd, beta=1.1)) == 1, "of the last tenth alone"
    once_long = [[10] * 15 + [100], before[1]]
    assert ranks._leaving([0], once_long, now, beta=1.1) == [RequestId(0, 15)], "one long response is no median"


@pytest.mark.slow
def test_every_value_stands_beside_a_simulated_one():
    said = []
    found = cells(said.append, part=PART)
    assert len({(cell.table, cell.row) for cell in found}) == len(found) == 2 + 3 + 6 + 4
    fitted_to = [cell.row for cell in found if cell.kind == "fitted"]
    assert len(fitted_to) == 3
    assert all("idle" in row or row == "Math-1 in 16 groups, of no higher rank" for row in fitted_to)
    assert [cell.published for cell in found if cell.table == "figure 14"] == [1.43, 1.10, 1.50]
    assert len(said) == 1 + 1 + 6
    assert LONGEST == 16384
