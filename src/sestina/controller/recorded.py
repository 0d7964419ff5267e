"""Response lengths of a recorded run, for the `oracle` scheduler."""

from collections.abc import Iterable
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.telemetry.traces import read_requests


class RecordedLengths:
    """Lengths by step, group and sample; empty of what was not recorded."""

    def __init__(self, rows: Iterable[tuple[int, GroupId, int, int]] = ()) -> None:
        self._lengths = {(step, group, sample): tokens for step, group, sample, tokens in rows}

    def of(self, step: int, group: GroupId, num_samples: int) -> tuple[int, ...]:
        """Return the lengths of a group's samples at a step; none at all unless each is recorded."""
        lengths = [self._lengths.get((step, group, sample)) for sample in range(num_samples)]
        return tuple(tokens for tokens in lengths if tokens is not None) if None not in lengths else ()


def recorded_lengths(config: RunConfig) -> RecordedLengths:
    """Return the lengths that the configuration asks for, none when its scheduler has no use for them.

    Raises DataError when those of a training step are missing. Held-out prompts may lack theirs.
    """
    source = config.rollout.lengths_from
    if config.rollout.scheduler != "oracle" or source is None:
        return RecordedLengths()
    table = read_requests(source)
    columns = (table.column(name).to_pylist() for name in ("step", "group", "sample", "response_tokens"))
    lengths = RecordedLengths(zip(*columns, strict=True))
    _check_steps(config, lengths, source)
    return lengths


def _check_steps(config: RunConfig, lengths: RecordedLengths, source: Path) -> None:
    group_size = config.algorithm.group_size
    per_step = config.algorithm.batch_size // group_size
    for step in range(1, config.run.steps + 1):
        for group in range((step - 1) * per_step, step * per_step):
            if not lengths.of(step, group, group_size):
                raise DataError(
                    f"{source}: its traces lack group {group} of step {step}, which rollout.scheduler 'oracle' needs; "
                    f"allowed is a run of at least {config.run.steps} steps with the same algorithm.batch_size "
                    f"{config.algorithm.batch_size} and algorithm.group_size {group_size}"
                )
