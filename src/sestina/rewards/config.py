"""What a user sets about rewards."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, CountOrNone, Duration, NonNegative, Text
from sestina.rewards.environments.config import CalculatorConfig, ToolConfig


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeConfig:
    """1 when the response's last code block passes the tests of its label, run in a sandbox, else 0."""

    kind: Literal["code"]
    isolation: Literal["auto", "bubblewrap", "namespaces"]
    """`auto`: bubblewrap where it works, else namespaces; where neither does, the start is refused."""
    python: Text | None
    """An interpreter whose packages the code may import; None: this one's."""
    run_s: Duration
    """All tests of a response; over it the reward is 0."""
    cpu_s: Count
    memory_bytes: Count
    """Of one process's address space, and of all of a sandbox together."""
    disk_bytes: Count
    output_bytes: Count
    """Of stdout, and of stderr."""
    max_processes: Count
    """Threads included."""
    num_workers: Count
    timeout_s: Duration
    """For one response; over it there is no reward: the sandbox, not the code, is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """The score that a language model gives, asked at an OpenAI-compatible endpoint."""

    kind: Literal["judge"]
    url: Text
    """Up to where /chat/completions follows."""
    model: Text
    rubric: Text
    """What it is to judge by; the form of its answer is added."""
    min_score: float
    max_score: float
    temperature: NonNegative
    max_reply_tokens: Count
    key_env: Text | None
    """Environment variable that holds the key."""
    key_file: Path | None
    """File that holds the key. Neither: calls are not signed."""
    max_attempts: Count
    max_requests: CountOrNone
    """Of one start of the run, attempts included; then it ends with an error. 0: no limit."""
    max_tokens: CountOrNone
    """As max_requests; calls under way may exceed it."""
    num_workers: Count
    """Calls at once."""
    timeout_s: Duration
    """For one response, all attempts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """The reward that a reward server gives."""

    kind: Literal["remote"]
    url: Text
    key_env: Text | None
    key_file: Path | None
    max_attempts: Count
    num_workers: Count
    """Calls at once."""
    timeout_s: Duration
    """For one response, all attempts included."""


WorkerConfig: TypeAlias = ExactConfig | MathConfig | FunctionConfig | CodeConfig | CalculatorConfig | ToolConfig
"""What worker processes give: rewards, and the answers of environments."""
ServiceConfig: TypeAlias = JudgeConfig | RemoteConfig
"""Rewards that are asked for over HTTP."""
RewardConfig: TypeAlias = ExactConfig | MathConfig | FunctionConfig | CodeConfig | JudgeConfig | RemoteConfig
