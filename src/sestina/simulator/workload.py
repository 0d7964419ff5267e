"""What a simulated step rolls out: groups with prompts and response lengths, drawn or recorded."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from sestina.config.run import RunConfig
from sestina.config.sim import DrawnConfig, RecordedConfig, SimConfig
from sestina.core.errors import ConfigError, DataError
from sestina.core.ids import EVAL_GROUPS, GroupId
from sestina.core.noise import derive
from sestina.core.units import Seconds
from sestina.simulator.lengths import correlated_lengths
from sestina.simulator.siblings import Siblings
from sestina.telemetry.beginnings import Beginning
from sestina.telemetry.lengths import read_beginnings, read_lengths, read_prompt_ids, read_spans

ASSUMED_SHARE = 4
"""A mean that nobody states is taken to be the longest response over this."""

_LENGTHS = 4
"""Name, below the workload's seed, of the key that draws lengths; a step is below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGroup:
    """One prompt and its responses."""

    group: GroupId
    prompt_id: str
    """Of the same prompt in another epoch the same."""
    prompt_tokens: int
    lengths: tuple[int, ...]
    rewards_s: tuple[Seconds, ...]
    """What scoring each takes."""
    siblings: Siblings | None = None
    """With what its responses begin."""


Workload: TypeAlias = Callable[[int], tuple[SimulatedGroup, ...]]
"""Step, from 1 -> its groups."""


def workload_of(config: RunConfig, sim: SimConfig) -> Workload:
    """Return a run's; raises DataError for a recording that cannot be used, ConfigError for a mean out of range."""
    match sim.workload:
        case DrawnConfig() as drawn:
            mean = mean_tokens(config)
            highest = mean * max(1.0, drawn.drift ** (config.run.steps - 1))
            if highest > config.rollout.max_new_tokens:
                raise ConfigError([
                    f"sim.workload.drift: {drawn.drift:g} is not allowed with a mean of {mean:g} tokens and run.steps "
                    f"{config.run.steps}; responses of {highest:,.0f} tokens in the mean are longer than "
                    f"rollout.max_new_tokens {config.rollout.max_new_tokens}"
                ])  # fmt: skip
            return lambda step: _drawn(config, sim, drawn, step)
        case RecordedConfig() as recorded:
            return _recorded(config, recorded.path, sim.reward_s)
        case None:
            raise ConfigError(["sim.workload: null is not allowed with sim.world 'simulated'; sim/workload=drawn is"])
        case _:
            assert_never(sim.workload)


def mean_tokens(config: RunConfig) -> float:
    """Return the mean length that a run is planned with."""
    rollout = config.rollout
    return rollout.expected_tokens or max(1.0, rollout.max_new_tokens / ASSUMED_SHARE)


def _drawn(config: RunConfig, sim: SimConfig, drawn: DrawnConfig, step: int) -> tuple[SimulatedGroup, ...]:
    """Of a step from 1 on; with epochs, of those before it too."""
    group_size = config.algorithm.group_size
    num_groups = config.algorithm.batch_size // group_size
    place, epoch = _place(drawn, step)
    lengths = correlated_lengths(
        num_groups=num_groups,
        group_size=group_size,
        mean_tokens=mean_tokens(config) * drawn.drift ** (step - 1),
        max_tokens=config.rollout.max_new_tokens,
        between=drawn.between,
        within=drawn.within,
        seed=derive(drawn.seed, _LENGTHS, place),
        epoch=epoch,
    )
    prompt_tokens = drawn.prompt_tokens or max(1, config.data.max_prompt_tokens // 2)
    rewards_s = (sim.reward_s,) * group_size
    return tuple(
        SimulatedGroup(
            group=(step - 1) * num_groups + number,
            prompt_id=str((place - 1) * num_groups + number),
            prompt_tokens=prompt_tokens,
            lengths=tuple(of_group),
            rewards_s=rewards_s,
        )
        for number, of_group in enumerate(lengths.tolist())
    )


def _place(drawn: DrawnConfig, step: int) -> tuple[int, int]:
    """Return which step of its epoch a step is, from 1, and the epoch, none of which is the 0th where there are any."""
    if not drawn.epoch_steps:
        return step, 0
    epoch, place = divmod(step - 1, drawn.epoch_steps)
    return place + 1, epoch + 2


def _recorded(config: RunConfig, path: Path, reward_s: Seconds) -> Workload:
    """Take the groups of a recording's steps as they are, whatever the batch size that the configuration states."""
    table = read_lengths(path)
    spans = read_spans(path, "reward_s")
    table = table.append_column("reward_s", pa.array([reward_s] * len(table)) if spans is None else spans)
    prompts = read_prompt_ids(path)
    table = table.append_column("prompt_id", table["group"].cast(pa.string()) if prompts is None else prompts)
    for name, column in read_beginnings(path).items():
        table = table.append_column(name, column)
    table = table.filter(pc.field("group") < EVAL_GROUPS)
    _check_limits(config, path, table)
    steps = _by_step(path, table.to_pylist())
    missing = [step for step in range(1, config.run.steps + 1) if step not in steps]
    if missing:
        raise DataError(
            f"{path}: has no responses of step {missing[0]}; it is for a run.steps of at most {missing[0] - 1}"
        )
    if config.run.mode == "async":
        _check_batches(config, path, steps)
    if config.run.mode != "sync":
        _check_numbers(config, path, steps)
    return lambda step: steps[step]


def _check_batches(config: RunConfig, path: Path, steps: Mapping[int, Sequence[SimulatedGroup]]) -> None:
    """Refuse steps that cannot be taken apart into groups and make batches again."""
    wanted = config.algorithm.batch_size // config.algorithm.group_size
    for step in range(1, config.run.steps + 1):
        if len(steps[step]) != wanted:
            raise DataError(
                f"{path}: step {step} has {len(steps[step])} groups; run.mode 'async' takes the {wanted} of a batch"
            )


def _check_numbers(config: RunConfig, path: Path, steps: Mapping[int, Sequence[SimulatedGroup]]) -> None:
    """Refuse groups that cannot be told apart where steps overlap."""
    seen = dict[GroupId, int]()
    for step in range(1, config.run.steps + 1):
        for group in steps[step]:
            if group.group in seen:
                raise DataError(
                    f"{path}: group {group.group} is of steps {seen[group.group]} and {step}; run.mode "
                    f"'{config.run.mode}' takes groups whose numbers differ"
                )
            seen[group.group] = step


def _check_limits(config: RunConfig, path: Path, table: pa.Table) -> None:
    limits = {
        "response_tokens": ("rollout.max_new_tokens", config.rollout.max_new_tokens),
        "prompt_tokens": ("data.max_prompt_tokens", config.data.max_prompt_tokens),
    }
    for column, (key, limit) in limits.items():
        most = pc.max(table[column]).as_py() or 0
        if most > limit:
            raise DataError(f"{path}: {column} reaches {most}; allowed are {limit} ({key})")


def _by_step(path: Path, rows: list[dict[str, Any]]) -> dict[int, tuple[SimulatedGroup, ...]]:
    found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["step"], row["group"], row["sample"])):
        found[int(row["step"]), int(row["group"])].append(row)
    steps: dict[int, list[SimulatedGroup]] = defaultdict(list)
    for (step, group), of_group in found.items():
        steps[step].append(
            SimulatedGroup(
                group=group,
                prompt_id=of_group[0]["prompt_id"],
                prompt_tokens=int(of_group[0]["prompt_tokens"]),
                lengths=tuple(int(row["response_tokens"]) for row in of_group),
                rewards_s=tuple(float(row["reward_s"]) for row in of_group),
                siblings=_siblings(of_group, f"{path}: group {group} of step {step}"),
            )
        )
    return {step: tuple(groups) for step, groups in steps.items()}


def _siblings(rows: Sequence[Mapping[str, Any]], where: str) -> Siblings | None:
    beginnings = [Beginning(int(row["text_rank"]), int(row["common_tokens"])) for row in rows]
    return Siblings.of(beginnings, [int(row["response_tokens"]) for row in rows], where)
