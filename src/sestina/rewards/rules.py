"""What a reward configuration means: the rule that scores a sample, and the faults found before a run starts."""

import asyncio
import inspect
import textwrap
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, assert_never

from sestina.core.errors import ConfigError
from sestina.rewards.attempt import Failure, attempt
from sestina.rewards.config import (
    CodeConfig,
    ExactConfig,
    FunctionConfig,
    JudgeConfig,
    MathConfig,
    RemoteConfig,
    RewardConfig,
    WorkerConfig,
)
from sestina.rewards.functions import Signature, arguments, find, reward_of
from sestina.rewards.messages import Sample
from sestina.rewards.outcome import Verdict

Rule: TypeAlias = Callable[[Sample], float | Verdict]
"""Returns a finite reward, with or without a reason, or raises."""

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end, as asyncio.run does."""


def load(config: WorkerConfig, run: Run = asyncio.run) -> Rule:
    """Return the rule; `run` runs a user's async function. Raises what `functions.find` raises."""
    match config:
        case ExactConfig():
            return _exact(config.answer_mark)
        case MathConfig():
            from sestina.rewards.answers import math_reward  # noqa: PLC0415 - half a second, for this rule alone

            return math_reward
        case FunctionConfig():
            return _function(find(config.path), config.signature, run)
        case CodeConfig():
            from sestina.rewards.code import code_rule  # noqa: PLC0415 - for this rule alone

            return code_rule(config)
        case _:
            assert_never(config)


def _exact(answer_mark: str) -> Rule:
    def rule(sample: Sample) -> float:
        _, mark, answer = sample.response.rpartition(answer_mark)
        return float(bool(mark) and answer.strip() == str(sample.label))

    return rule


def _function(function: Callable[..., Any], signature: Signature, run: Run) -> Rule:
    def rule(sample: Sample) -> float:
        result = function(**arguments(signature, sample))
        return reward_of(signature, run(_awaited(result)) if inspect.isawaitable(result) else result)

    return rule


async def _awaited(result: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the user's function returns
    return await result


def check(config: RewardConfig) -> None:
    """Find before a run starts what can be found then; mutates sys.path.

    A user's function is imported, and must take the arguments it will get; a sandbox runs a first program; a service's
    address and key are looked at. Raises ConfigError naming the key of the section `reward`.
    """
    match config:
        case ExactConfig() | MathConfig():
            return
        case FunctionConfig():
            _check_arguments(_import(config.path), config)
        case CodeConfig():
            from sestina.rewards.sandbox.isolation import isolated  # noqa: PLC0415 - for this rule alone

            isolated(config)
        case JudgeConfig() | RemoteConfig():
            from sestina.rewards.service.check import check_service  # noqa: PLC0415 - for these two alone

            check_service(config)
        case _:
            assert_never(config)


def _import(path: str) -> Callable[..., Any]:
    found = attempt(lambda: find(path))
    if not isinstance(found, Failure):
        return found
    if isinstance(found.cause, ConfigError):
        raise found.cause
    shown = textwrap.indent(found.traceback, "    ")
    raise ConfigError([f"reward.path: '{path}': importing it failed: {found.error}\n{shown}"])


def _check_arguments(function: Callable[..., Any], config: FunctionConfig) -> None:
    sample = Sample(prompt="", response="", label="", meta={"data_source": ""} if config.signature == "verl" else {})
    given = arguments(config.signature, sample)
    try:
        parameters = inspect.signature(function)
    except ValueError:
        return  # Some functions written in C do not say what they take.
    try:
        # What meta adds for trl is known only with the data.
        (parameters.bind_partial if config.signature == "trl" else parameters.bind)(**given)
    except TypeError as error:
        raise ConfigError(
            [f"reward.signature: '{config.signature}' calls '{config.path}' with {', '.join(given)}: {error}"]
        ) from None
