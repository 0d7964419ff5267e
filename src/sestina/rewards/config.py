"""What a user sets about rewards."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, Duration, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactConfig:
    """1 when the text after the last `answer_mark` equals the label, else 0."""

    kind: Literal["exact"]
    answer_mark: Text
    num_workers: Count
    timeout_s: Duration
    """For one response; a worker that takes longer is ended and started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MathConfig:
    """1 when math-verify finds the response's answer equal to the label, else 0."""

    kind: Literal["math"]
    num_workers: Count
    timeout_s: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfig:
    """A function of the user's."""

    kind: Literal["function"]
    path: Text
    """Import path `package.module:name`."""
    signature: Literal["native", "verl", "trl"]
    """`native` fn(prompt, response, label, meta); `verl` compute_score(data_source, solution_str, ground_truth,
    extra_info); `trl` fn(completions, **columns)."""
    num_workers: Count
    timeout_s: Duration


RewardConfig: TypeAlias = ExactConfig | MathConfig | FunctionConfig
