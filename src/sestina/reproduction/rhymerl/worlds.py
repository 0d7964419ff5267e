"""RhymeRL's workload as simulated worlds: half of its instances, ranking groups and prompts.

The mean length is that of the middle of the measured steps, if it grows evenly (figure 3a); shorter limits cut the same
lengths. Fitted to the baseline: the spread of lengths between prompts and an instance's prompts, to veRL's two idle
shares; the trainer's rate, to the share of a step that rolling out takes. All else is conf/exp/rhymerl_*.yaml, the
preset h800 and, for how ranks change, `seer.tasks.WITHIN`, which is table 2's Math-1. The experiments' batch is not
used: it is section 7.4's of the last step, "oversampled", under which no spread leaves veRL idle as published.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from sestina.config.run import RunConfig
from sestina.config.sim import DrawnConfig
from sestina.config.sweep import runs_of
from sestina.reproduction.rhymerl.published import (
    EARLIEST_IDLE,
    FIRST_TOKENS,
    GROWTH_STEPS,
    IDLE,
    LAST_TOKENS,
    ROLLOUT_SHARE,
    STEPS,
    WARM_UP,
)
from sestina.reproduction.rollouts import Outcome, rolled_out
from sestina.reproduction.seer.tasks import WITHIN
from sestina.simulator.lengths import LengthArray, correlated_lengths
from sestina.simulator.world import World, world_of

Model: TypeAlias = Literal["8B", "14B", "32B"]
MODELS: tuple[Model, ...] = ("8B", "14B", "32B")

CONF = Path("conf")
PART = 2
"""One of so many equal parts of instances, ranking groups and prompts is simulated."""
SPREADS = (0.6, 1.0, 1.4)
"""Of lengths between prompts, as deviations of the logarithm. At 2.0 and 32 prompts veRL comes out as idle as at 0.6
and 8, by less than iterations differ; the narrower is taken."""
LOADS = (8, 16, 32)
"""Prompts of an instance that are tried, of the 48 that models of 8 and 14 B have."""
INSTANCES = 48
ITERATIONS = 3
"""Of the baseline, whose idle shares differ by a tenth."""
EPOCH_STEPS = 4
"""80 steps of 20 epochs, over which the paper has its means."""
CHUNK_TOKENS = 2048
"""Ours: room is reserved chunk by chunk, and the experiments' 8192 would leave much of it unused."""
GROUP_SIZE, LONGEST = 16, 16384

_GROWTH_TOKENS = (LAST_TOKENS - FIRST_TOKENS) / GROWTH_STEPS
MEAN_TOKENS = round(FIRST_TOKENS + _GROWTH_TOKENS * (WARM_UP + STEPS) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What the baseline's idle shares have decided."""

    between: float
    load: int
    """Prompts of an instance, of 48."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run of which nothing is left to choose but what is fitted."""

    model: Model = "14B"
    mode: Literal["sync", "pipelined", "async"] = "sync"
    scheduler: Literal["group", "histopipe"] = "group"
    longest: int = LONGEST
    eta: int = 1
    steps: int = ITERATIONS
    part: int = PART


def fitted(part: int = PART) -> tuple[Fitted, Outcome]:
    """Simulate the baseline's rollouts under each spread and load; what leaves it idle as published is taken."""
    tried = [Fitted(between=between, load=load) for between in SPREADS for load in LOADS]
    outcomes = {fit: rolled_out(_world(Setting(part=part), fit), "group", ITERATIONS) for fit in tried}
    fit = min(outcomes, key=lambda fit: abs(outcomes[fit].idle - IDLE) + abs(outcomes[fit].spread - EARLIEST_IDLE))
    return fit, outcomes[fit]


def world_of_setting(setting: Setting, fit: Fitted) -> World:
    """Return a setting's world; the trainer is as much faster than the preset's as its model's baseline says."""
    world = _world(setting, fit)
    rate = trainer_rate(setting.model, setting.part, fit)
    return replace(world, training=replace(world.training, rank_flops=rate * world.training.rank_flops))


@cache
def trainer_rate(model: Model, part: int, fit: Fitted) -> float:
    """Return how many times as fast as the preset's trainer is, for a step's rollout to have its published share."""
    world = _world(Setting(model=model, part=part), fit)
    lengths = [group.prompt_tokens + length for group in world.workload(1) for length in group.lengths]
    wanted_s = rolled_out(world, "group", 1).rollout_s * (1 - ROLLOUT_SHARE) / ROLLOUT_SHARE
    return world.training.batch_s(lengths) / wanted_s


def lengths_of(between: float, *, num_prompts: int, epoch: int) -> LengthArray:
    """Return [prompts, 16] tokens of an epoch; the prompts of all epochs are the same."""
    return correlated_lengths(
        num_groups=num_prompts,
        group_size=GROUP_SIZE,
        mean_tokens=MEAN_TOKENS,
        max_tokens=LONGEST,
        between=between,
        within=WITHIN * between,
        seed=1,
        epoch=epoch,
    )


def _world(setting: Setting, fit: Fitted) -> World:
    config = _config(setting, fit)
    assert config.sim is not None, "the experiments are simulated"
    return world_of(config, config.sim)


def _config(setting: Setting, fit: Fitted) -> RunConfig:
    config, groups = _composed(setting.model), INSTANCES * fit.load // setting.part
    assert config.sim is not None, "the experiments are simulated"
    return replace(
        config,
        run=replace(config.run, mode=setting.mode, steps=setting.steps),
        async_=replace(config.async_, max_staleness=setting.eta, max_running_groups=2 * groups),
        algorithm=replace(config.algorithm, batch_size=groups * GROUP_SIZE),
        rollout=replace(
            config.rollout,
            scheduler=setting.scheduler,
            num_instances=config.rollout.num_instances // setting.part,
            ranking_groups=config.rollout.ranking_groups // setting.part,
            chunk_tokens=CHUNK_TOKENS,
            max_new_tokens=setting.longest,
            expected_tokens=_mean_tokens(fit.between, setting.longest),
        ),
        sim=replace(config.sim, workload=_drawn(config.sim.workload, fit.between)),
    )


def _drawn(workload: object, between: float) -> DrawnConfig:
    assert isinstance(workload, DrawnConfig), "the experiments draw their lengths"
    drift = 1 + _GROWTH_TOKENS / MEAN_TOKENS
    spreads = replace(workload, between=between, within=WITHIN * between, drift=drift)
    return replace(spreads, epoch_steps=EPOCH_STEPS, seen_before=True)


@cache
def _composed(model: Model) -> RunConfig:
    """An experiment; of AReaL, what is overdue is waited for, and its alarm is not asked."""
    changes = ("async.overdue=wait", "async.bias_alarm=1.0")
    (config,) = runs_of(["sim=simulated", f"+exp=rhymerl_{model.lower()}", *changes], CONF.absolute())
    return config


@cache
def _mean_tokens(between: float, longest: int) -> int:
    """Return the mean of the same lengths, cut elsewhere."""
    return round(float(np.minimum(lengths_of(between, num_prompts=8192, epoch=0), longest).mean()))
