"""What a reward or an environment means: the rule that takes a sample, and the faults found before a run starts."""

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
from sestina.rewards.environments.calculator import calculate
from sestina.rewards.environments.config import CalculatorConfig, EnvironmentConfig, NoEnvironmentConfig, ToolConfig
from sestina.rewards.functions import Signature, arguments, find, reward_of
from sestina.rewards.messages import Sample
from sestina.rewards.outcome import Verdict

Rule: TypeAlias = Callable[[Sample], float | Verdict | str]
"""Returns a finite reward, with or without a reason, an environment what follows in the response; or raises."""

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
        case CalculatorConfig():
            return _calculator(config)
        case ToolConfig():
            return _tool(find(config.path, "environment.path"), run)
        case _:
            assert_never(config)


def _calculator(config: CalculatorConfig) -> Rule:
    def rule(sample: Sample) -> str:
        return calculate(sample.response.removesuffix(config.turn_end), modulus=config.modulus)

    return rule


def _tool(function: Callable[..., Any], run: Run) -> Rule:
    def rule(sample: Sample) -> str:
        result = function(**arguments("native", sample))
        text = run(_awaited(result)) if inspect.isawaitable(result) else result
        if not isinstance(text, str):
            raise ValueError(f"the tool must return text, it returned {type(text).__name__}")
        return text

    return rule


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


def check_environment(config: EnvironmentConfig) -> None:
    """Import a user's tool, which must take the arguments it will get; raises as `check`, for section `environment`."""
    match config:
        case NoEnvironmentConfig() | CalculatorConfig():
            return
        case ToolConfig():
            sample = Sample(prompt="", response="", label="", meta={})
            if (error := _refused(_import(config.path, "environment.path"), "native", sample)) is not None:
                given = ", ".join(arguments("native", sample))
                raise ConfigError([f"environment.path: '{config.path}' is called with {given}: {error}"])
        case _:
            assert_never(config)


def _import(path: str, key: str = "reward.path") -> Callable[..., Any]:
    found = attempt(lambda: find(path, key))
    if not isinstance(found, Failure):
        return found
    if isinstance(found.cause, ConfigError):
        raise found.cause
    shown = textwrap.indent(found.traceback, "    ")
    raise ConfigError([f"{key}: '{path}': importing it failed: {found.error}\n{shown}"])


def _check_arguments(function: Callable[..., Any], config: FunctionConfig) -> None:
    sample = Sample(prompt="", response="", label="", meta={"data_source": ""} if config.signature == "verl" else {})
    if (error := _refused(function, config.signature, sample)) is not None:
        given = ", ".join(arguments(config.signature, sample))
        raise ConfigError([f"reward.signature: '{config.signature}' calls '{config.path}' with {given}: {error}"])


def _refused(function: Callable[..., Any], signature: Signature, sample: Sample) -> TypeError | None:
    """Return what a function says of the arguments it would get; None when it takes them."""
    try:
        parameters = inspect.signature(function)
    except ValueError:
        return None  # Some functions written in C do not say what they take.
    try:
        # What meta adds for trl is known only with the data.
        (parameters.bind_partial if signature == "trl" else parameters.bind)(**arguments(signature, sample))
    except TypeError as error:
        return error
    return None
