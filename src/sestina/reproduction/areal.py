"""AReaL (arXiv 2505.24298 v5): what running ahead, interrupting and more GPUs are worth, in simulated worlds.

Scores say that figure 5c's eta = 0 is table 1's synchronous run of 1.5 B. Its 41.0 hours for 250 steps at 128.7
thousand tokens a second make 9,276 tokens a response, which is all that is known of the lengths; their spread is the
simulator's. One parameter is fitted, what a decoding step takes beside its arithmetic, by that one throughput. It so
stands for all that the synchronous run loses and no roofline has. All else is the preset h800, the trainer's share of
the peak included, and conf/exp/areal_*.yaml, with whole responses as the paper has them.

Instances, trainer ranks and prompts are divided by the same number, which leaves each instance its load. What may run
at once is bounded by eta alone, as in the paper; the experiments' own bound is ours. Throughputs
are of whole runs, as the paper's hours are, of 40 steps instead of 250; those that are compared for their growth
are of the middle of shorter ones, and rates of generation of runs that always have groups to begin.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from sestina.config.run import RunConfig
from sestina.config.sim import DrawnConfig, GpuConfig, SimConfig
from sestina.config.sweep import runs_of
from sestina.core.units import Seconds
from sestina.reproduction.cell import Cell, Kind, cell_of
from sestina.simulator.lengths import correlated_lengths
from sestina.simulator.rollouts import driver_of, steps_of
from sestina.simulator.world import world_of

Say: TypeAlias = Callable[[str], object]
Lines: TypeAlias = list[dict[str, float]]
"""Metrics of a run's steps."""

PAPER = "AReaL v5"
_cell = partial(cell_of, PAPER)
CONF = Path("conf")
ALWAYS = 10**6
"""A staleness that no run reaches: eta is infinite."""

RESPONSES, LONGEST = 8192, 27648
SYNC_HOURS, SYNC_STEPS, SYNC_RATE = 41.0, 250, 128.7e3
"""Table 1 and figure 5c: the synchronous run of 1.5 B on 16 nodes."""
MEAN_TOKENS = round(SYNC_HOURS * 3600 / SYNC_STEPS * SYNC_RATE / RESPONSES)

FIGURE_5C: Mapping[int, float] = {1: 269.3, 2: 356.6, 4: 356.6, 8: 371.7, 16: 382.4, ALWAYS: 396.8}
"""Thousand tokens a second, by eta."""
TABLE_7: Mapping[int, float] = {0: 27.1, 1: 47.8, 2: 47.8, 4: 49.0, 8: 51.5, 16: 52.0}
"""The same on 8 GPUs: 64 prompts, contexts of 8,192."""
FIGURE_6B: Mapping[str, float] = {"1.5B": 231 / 207, "7B": 130 / 111}
"""Tokens generated on 4 nodes, interrupted over not."""
FIGURE_4 = ((("1.5B", "areal_1p5b"), 32, 256), (("7B", "areal_7b"), 64, 512))
"""Models, and the GPUs between which throughput grows about linearly, as the text has it; the curves have no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run of which nothing is left to choose."""

    exp: str = "areal_1p5b"
    instances: int = 12
    ranks: int = 4
    responses: int = 1024
    longest: int = LONGEST
    eta: int = 0
    updates: Literal["interrupt", "drain"] = "interrupt"
    steps: int = 40
    taken: int | None = None
    """Steps that are simulated of these; None: all."""
    step_s: Seconds
    """What is fitted."""


def cells(say: Say) -> list[Cell]:
    """Simulate every value; under two minutes on one core."""
    step_s = fitted_step_s()
    say(f"AReaL: {1e3 * step_s:.2f} ms a decoding step beside its arithmetic, fitted to {SYNC_RATE:,.0f} tokens/s")
    base = Setting(step_s=step_s)
    return [*_figure_5c(base, say), *_table_7(base, say), *_figure_6b(base, say), *_figure_4(base, say)]


def fitted_step_s() -> Seconds:
    """Return the constant part of a decoding step under which the synchronous run has its published throughput."""
    low_s, high_s = 1e-3, 9e-3
    low, high = (_mean_step_s(Setting(step_s=step_s, steps=10)) for step_s in (low_s, high_s))
    wanted = MEAN_TOKENS * RESPONSES / SYNC_RATE
    # Every step of a batch takes as much longer, so that the whole is linear but for who meets whom.
    return low_s + (wanted - low) / (high - low) * (high_s - low_s)


def _figure_5c(base: Setting, say: Say) -> list[Cell]:
    shrunk = 1e-3 * RESPONSES / base.responses
    rates = {eta: shrunk * trained_rate(simulated(replace(base, eta=eta))) for eta in (0, *FIGURE_5C)}
    say(f"AReaL, figure 5c, by eta: {_shown(rates)}")

    def cell(eta: int, published: float, kind: Kind) -> Cell:
        row = f"1.5B, 16 nodes, {_eta(eta)}"
        return _cell("figure 5c", row, "thousand tokens/s trained on", published, rates[eta], kind)

    return [cell(0, SYNC_RATE / 1e3, "fitted"), *(cell(eta, rate, "predicted") for eta, rate in FIGURE_5C.items())]


def _table_7(base: Setting, say: Say) -> list[Cell]:
    # As the authors' examples split one node (repository, version 0.3: sglang.d4p1m1+d2p2m1); the paper's three to one
    # is that of its large runs.
    small = replace(base, instances=4, ranks=4, responses=1024, longest=8192 - 1024, steps=24)
    base_rate, *rates = [1e-3 * trained_rate(simulated(replace(small, eta=eta))) for eta in TABLE_7]
    gains = {eta: rate / base_rate for eta, rate in zip(list(TABLE_7)[1:], rates, strict=True)}
    say(f"AReaL, table 7: eta 0 {base_rate:.1f} thousand tokens/s, over it by eta: {_shown(gains)}")
    first = _cell("table 7", "1.5B, 8 GPUs, eta 0", "thousand tokens/s trained on", TABLE_7[0], base_rate, "predicted")
    return [
        first,
        *(
            _cell("table 7", f"1.5B, 8 GPUs, {_eta(eta)} over 0", "x", TABLE_7[eta] / TABLE_7[0], gain, "predicted")
            for eta, gain in gains.items()
        ),
    ]


def _figure_6b(base: Setting, say: Say) -> list[Cell]:
    # Rollout is never held up: there are more groups to begin than it gets to.
    few = replace(base, instances=3, ranks=1, responses=1024, eta=ALWAYS, steps=30, taken=7)
    gains: dict[str, float] = {}
    for model, exp in (("1.5B", "areal_1p5b"), ("7B", "areal_7b")):
        runs = [simulated(replace(few, exp=exp, updates=updates)) for updates in ("interrupt", "drain")]
        gains[model] = generated_rate(runs[0]) / generated_rate(runs[1])
    say(f"AReaL, figure 6b, interrupted over not: {_shown(gains)}")
    return [
        _cell("figure 6b", f"{model}, 4 nodes, interrupted over not", "x", FIGURE_6B[model], gain, "predicted")
        for model, gain in gains.items()
    ]


def _figure_4(base: Setting, say: Say) -> list[Cell]:
    found: list[Cell] = []
    for (model, exp), few, many in FIGURE_4:
        for context in (16384, 32768):
            longest = min(context - 1024, LONGEST)
            rates = [_grown_rate(replace(base, exp=exp, longest=longest), gpus) for gpus in (few, many)]
            row = f"{model}, contexts of {context:,}, {many} over {few} GPUs; the text: about linear"
            found.append(_cell("figure 4", row, "x", many / few, rates[1] / rates[0], "predicted"))
    say(f"AReaL, figure 4: {_shown({cell.row: cell.simulated for cell in found})}")
    return found


def simulated(setting: Setting) -> Lines:
    """Return the metrics of a run's steps."""
    config = config_of(setting)
    assert config.sim is not None, "the experiments are simulated"
    world = world_of(config, config.sim)
    step_of = steps_of(world, driver_of(world, config.rollout.scheduler, None))
    return [step_of(step)[1] for step in range(1, (setting.taken or setting.steps) + 1)]


def trained_rate(lines: Lines) -> float:
    """Return the tokens trained on in a second."""
    return sum(line["perf/rollout_tokens"] for line in lines) / sum(line["perf/step_s"] for line in lines)


def generated_rate(lines: Lines) -> float:
    """Return the tokens generated in a second, from the first batch on."""
    first, last = lines[0], lines[-1]
    # They are counted when a batch is taken, so that a step's training and weights are of the time after.
    after_s = sum(line["perf/train_s"] + line["perf/weights_s"] for line in lines[:-1])
    waited_s = sum(line["perf/rollout_s"] for line in lines[1:])
    return (last["async/tokens_generated"] - first["async/tokens_generated"]) / (after_s + waited_s)


def config_of(setting: Setting) -> RunConfig:
    """Return a setting's configuration."""
    config = _composed(setting.exp)
    assert config.sim is not None, "the experiments are simulated"
    return replace(
        config,
        run=replace(config.run, steps=setting.steps),
        async_=replace(config.async_, max_staleness=setting.eta, max_running_groups=None),
        algorithm=replace(config.algorithm, batch_size=setting.responses),
        rollout=replace(
            config.rollout,
            num_instances=setting.instances,
            max_new_tokens=setting.longest,
            expected_tokens=_mean_tokens(setting.longest),
        ),
        # Its layout takes no time in the cost model, but for pipelines, which these have none of.
        trainer=replace(config.trainer, num_ranks=setting.ranks, tensor_parallel=1, sequence_parallel=False),
        sim=replace(config.sim, updates=setting.updates, hardware=_slower(config.sim, setting.step_s)),
    )


def _slower(sim: SimConfig, step_s: Seconds) -> GpuConfig:
    assert isinstance(sim.hardware, GpuConfig), "the experiments have a GPU's preset"
    return replace(sim.hardware, step_s=step_s)


@cache
def _composed(exp: str) -> RunConfig:
    """An experiment whose responses are whole: their instance queues them, and preempts when its room runs out."""
    changes = ("run.mode=async", "rollout.scheduler=group", "async.overdue=wait", "async.bias_alarm=1.0")
    (config,) = runs_of(["sim=simulated", f"+exp={exp}", *changes], CONF.absolute())
    return config


@cache
def _mean_tokens(longest: int) -> int:
    """Return the mean of the same lengths, cut elsewhere."""
    config = _composed("areal_1p5b")
    assert config.sim is not None, "the experiments are simulated"
    drawn = config.sim.workload
    assert isinstance(drawn, DrawnConfig), "the experiments draw their lengths"
    lengths = correlated_lengths(
        num_groups=RESPONSES // config.algorithm.group_size,
        group_size=config.algorithm.group_size,
        mean_tokens=MEAN_TOKENS,
        max_tokens=LONGEST,
        between=drawn.between,
        within=drawn.within,
        seed=drawn.seed,
    )
    return round(float(np.minimum(lengths, longest).mean()))


def _grown_rate(base: Setting, gpus: int) -> float:
    """Return an eighth of the rate on so many GPUs, three to roll out for each that trains."""
    sizes = replace(base, instances=3 * gpus // 32, ranks=gpus // 32, responses=RESPONSES // 8)
    return trained_rate(_middle(simulated(replace(sizes, eta=4, steps=30))))


def _middle(lines: Lines) -> Lines:
    """Leave out the beginning, when rollout gets ahead, and the end, when there is nothing left to begin."""
    third = len(lines) // 3
    return lines[third : len(lines) - third]


def _mean_step_s(setting: Setting) -> Seconds:
    return statistics.fmean(line["perf/step_s"] for line in simulated(setting))


def _eta(eta: int) -> str:
    return "eta infinite" if eta == ALWAYS else f"eta {eta}"


def _shown(values: Mapping[int, float] | Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())
