"""Response lengths of a recorded run: for the `oracle` scheduler to order by, and for responses to be held to."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.core.errors import DataError
from sestina.core.ids import GroupId
from sestina.telemetry.lengths import COLUMNS, read_lengths


@dataclass(frozen=True, slots=True)
class RecordedLength:
    """What a response came to."""

    prompt_tokens: int
    tokens: int
    stopped: bool
    """It ended with the end of sequence, not at its limit."""


class RecordedLengths:
    """Lengths by step, group and sample; empty of what was not recorded."""

    def __init__(self, rows: Iterable[tuple[int, GroupId, int, int, int, str]] = (), source: Path = Path()) -> None:
        self._source = source
        self._lengths = {
            (step, group, sample): RecordedLength(prompt, tokens, finish == "stop")
            for step, group, sample, prompt, tokens, finish in rows
        }

    def of(self, step: int, group: GroupId, num_samples: int, prompt_tokens: int) -> tuple[RecordedLength, ...]:
        """Return the lengths of a group's samples at a step; none at all unless each is recorded.

        Raises DataError when they were recorded with another prompt than one of `prompt_tokens`.
        """
        found = [self._lengths.get((step, group, sample)) for sample in range(num_samples)]
        lengths = tuple(length for length in found if length is not None)
        if len(lengths) < num_samples:
            return ()
        for length in lengths:
            if length.prompt_tokens != prompt_tokens:
                raise DataError(
                    f"{self._source}: group {group} of step {step} has a prompt of {length.prompt_tokens} tokens there "
                    f"and of {prompt_tokens} here; allowed is a recording of the same prompts and seed"
                )
        return lengths

    def missing(self, step: int, group: GroupId, num_samples: int) -> bool:
        """Whether any of a group's samples was not recorded."""
        return any((step, group, sample) not in self._lengths for sample in range(num_samples))

    @property
    def longest(self) -> int:
        """Tokens of the longest response; 0 when there is none."""
        return max((length.tokens for length in self._lengths.values()), default=0)


def recorded_lengths(config: RunConfig) -> RecordedLengths:
    """Return the lengths that the `oracle` scheduler orders by, none for another scheduler.

    Raises DataError when those of a training step are missing. Held-out prompts may lack theirs.
    """
    rollout = config.rollout
    source = rollout.lengths_from or rollout.forced_lengths_from
    if rollout.scheduler != "oracle" or source is None:
        return RecordedLengths()
    return _read(config, source, "rollout.scheduler 'oracle'")


def forced_lengths(config: RunConfig) -> RecordedLengths:
    """Return the lengths that responses are held to, none unless the configuration names a recording.

    Raises DataError when those of a training step are missing, or one is longer than a response may be.
    """
    source = config.rollout.forced_lengths_from
    if source is None:
        return RecordedLengths()
    lengths = _read(config, source, "rollout.forced_lengths_from")
    if lengths.longest > config.rollout.max_new_tokens:
        raise DataError(
            f"{source}: its longest response has {lengths.longest} tokens; allowed are "
            f"{config.rollout.max_new_tokens} (rollout.max_new_tokens)"
        )
    return lengths


def _read(config: RunConfig, source: Path, wanted_by: str) -> RecordedLengths:
    table = read_lengths(source)
    lengths = RecordedLengths(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True), source)
    group_size = config.algorithm.group_size
    per_step = config.algorithm.batch_size // group_size
    for step in range(1, config.run.steps + 1):
        for group in range((step - 1) * per_step, step * per_step):
            if lengths.missing(step, group, group_size):
                raise DataError(
                    f"{source}: its traces lack group {group} of step {step}, which {wanted_by} needs; allowed is a "
                    f"run of at least {config.run.steps} steps with the same algorithm.batch_size "
                    f"{config.algorithm.batch_size} and algorithm.group_size {group_size}"
                )
    return lengths
