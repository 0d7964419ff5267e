"""A reward function of the user's: found by its import path, called by the convention of its signature.

    native  fn(prompt, response, label, meta) -> number
    verl    compute_score(data_source, solution_str, ground_truth, extra_info) -> number or {"score": number, ...}
    trl     fn(completions=[...], prompts=[...], label=[...], **columns of meta) -> [number]

Arguments go by keyword. Any of them may be async.
"""

import difflib
import importlib
import math
import os
import reprlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypeAlias, assert_never

from sestina.core.errors import AbsentError, ConfigError
from sestina.rewards.messages import Sample

Signature: TypeAlias = Literal["native", "verl", "trl"]


def find(path: str, key: str = "reward.path") -> Callable[..., Any]:
    """Import `package.module:name`, which `key` names, the working directory first; mutates sys.path.

    Raises ConfigError when the path is malformed or leads nowhere, AbsentError when there is no such module, and
    whatever the module raises.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise _fault(key, path, "expected 'package.module:name'")
    module = _import(key, path, module_name)
    try:
        function = getattr(module, name)
    except AttributeError:
        raise _fault(key, path, f"module '{module_name}' has no '{name}'{_suggestion(name, module)}") from None
    if not callable(function):
        raise _fault(key, path, f"'{name}' is not callable, it is {type(function).__name__} {reprlib.repr(function)}")
    return function


def _import(key: str, path: str, name: str) -> ModuleType:
    if (directory := os.getcwd()) != sys.path[0]:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The module is there; one that it imports is not.
        gone = f"{key}: '{path}': module '{error.name}' not found in {directory} or among installed packages"
        raise AbsentError([gone]) from None


def _suggestion(name: str, module: ModuleType) -> str:
    callables = [key for key, value in vars(module).items() if callable(value)]
    near = difflib.get_close_matches(name, callables, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _fault(key: str, path: str, reason: str) -> ConfigError:
    return ConfigError([f"{key}: '{path}': {reason}"])


def arguments(signature: Signature, sample: Sample) -> dict[str, Any]:
    """Return the keyword arguments of one call; raises ValueError when `meta` does not fit the signature."""
    match signature:
        case "native":
            return {"prompt": sample.prompt, "response": sample.response, "label": sample.label, "meta": sample.meta}
        case "verl":
            return _verl_arguments(sample)
        case "trl":
            return _trl_arguments(sample)
        case _:
            assert_never(signature)


def _verl_arguments(sample: Sample) -> dict[str, Any]:
    if "data_source" not in sample.meta:
        raise ValueError(f"signature 'verl' needs meta['data_source']; meta has {sorted(sample.meta)}")
    return {
        "data_source": sample.meta["data_source"],
        "solution_str": sample.response,
        "ground_truth": sample.label,
        "extra_info": sample.meta.get("extra_info") or {},
    }


def _trl_arguments(sample: Sample) -> dict[str, Any]:
    fixed = {"completions": [sample.response], "prompts": [sample.prompt], "label": [sample.label]}
    if twice := sorted(fixed.keys() & sample.meta.keys()):
        raise ValueError(f"signature 'trl' passes '{twice[0]}' itself; meta holds it too")
    return {key: [value] for key, value in sample.meta.items()} | fixed


def reward_of(signature: Signature, result: Any) -> float:  # noqa: ANN401 - whatever the user's function returns
    """Return the number in what a call returned; raises ValueError when there is no finite one."""
    match signature:
        case "native":
            return _number(result)
        case "verl":
            if isinstance(result, dict) and "score" not in result:
                raise ValueError(f"the function returned a dict without 'score'; it has {sorted(map(str, result))}")
            return _number(result["score"] if isinstance(result, dict) else result)
        case "trl":
            rewards = result.tolist() if hasattr(result, "tolist") else result
            if not isinstance(rewards, list | tuple) or len(rewards) != 1:
                raise ValueError(f"the function must return a list of one number, it returned {_shown(result)}")
            return _number(rewards[0])
        case _:
            assert_never(signature)


def _number(value: Any) -> float:  # noqa: ANN401 - whatever the user's function returns
    # Scalars of numpy and torch have an empty shape.
    plain = value.item() if getattr(value, "shape", None) == () else value
    if not isinstance(plain, int | float) or not math.isfinite(plain):
        raise ValueError(f"the reward must be a finite number, the function returned {_shown(value)}")
    return float(plain)


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever the user's function returns
    return f"{type(value).__name__} {reprlib.repr(value)}"
