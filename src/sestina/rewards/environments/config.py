"""What a user sets about environments."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge

from sestina.core.ranges import Count, CountOrNone, Duration, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class NoEnvironmentConfig:
    """A response is the model's alone."""

    kind: Literal["none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorConfig:
    """Answers a sum or product of whole numbers with its value, and anything else with nothing."""

    kind: Literal["calculator"]
    turn_end: Text
    """One token of the model's; drawing it ends a turn."""
    modulus: CountOrNone
    """Values are answered modulo this; 0: as they are."""
    max_turns: Annotated[int, Ge(2)]
    """Of a response; the last one is not answered."""
    max_observation_tokens: Count
    """Of one answer; what is longer is cut."""
    num_workers: Count
    timeout_s: Duration
    """For one answer; a worker that takes longer is ended and started again, and the response has no reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfig:
    """A function of the user's."""

    kind: Literal["tool"]
    path: Text
    """Import path `package.module:name` of fn(prompt, response, label, meta) -> text."""
    turn_end: Text
    max_turns: Annotated[int, Ge(2)]
    max_observation_tokens: Count
    num_workers: Count
    timeout_s: Duration
    """These as in `CalculatorConfig`."""


AnsweringConfig: TypeAlias = CalculatorConfig | ToolConfig
EnvironmentConfig: TypeAlias = NoEnvironmentConfig | CalculatorConfig | ToolConfig
NO_ENVIRONMENT = NoEnvironmentConfig(kind="none")
