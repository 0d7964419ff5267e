r"""Unit tests as a prompt's label holds them.

    {"inputs": ["1 2\n"], "outputs": ["3\n"]}                 a program that reads stdin and writes stdout
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}    a function, or a method of class Solution
    {"tests": ["assert add(1, 2) == 3"]}                      code that raises where the response falls short
    {"fn_name": "sum", "tests": ["assert sum([1]) == 1"]}     the same; the response's function is named like Python's

The object, or JSON of it, as verl's Parquet has it.
"""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Case: TypeAlias = str | dict[str, Any]
"""Code; code with the name of a function that is the response's: name, code; or a call and what it returns: name,
arguments, expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTests:
    """Inputs and outputs of a program."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTests:
    """Calls of what a response defines."""

    cases: Sequence[Case]


def read_tests(label: Any) -> StdinTests | CallTests:  # noqa: ANN401 - whatever a file holds
    """Return the tests of a label; raises ValueError when it is none of the forms, or has no test."""
    tests = _object(label)
    match tests:
        case {"tests": str() as code}:
            return CallTests(cases=[_coded(code, tests.get("fn_name"))])
        case {"tests": [_, *_] as codes}:
            return CallTests(cases=[_coded(code, tests.get("fn_name")) for code in codes])
        case {"fn_name": str() as name, "inputs": [_, *_] as inputs, "outputs": [*outputs]} if name:
            return CallTests(cases=[_call(name, *pair) for pair in _pairs(inputs, outputs)])
        case {"inputs": [_, *_] as inputs, "outputs": [*outputs]}:
            return StdinTests(pairs=[_texts(*pair) for pair in _pairs(inputs, outputs)])
        case _:
            raise ValueError(
                "label must hold 'tests', or 'inputs' and 'outputs' with or without 'fn_name', at least one of each; "
                f"it has {sorted(map(str, tests))}"
            )


def _object(label: Any) -> dict[Any, Any]:  # noqa: ANN401 - whatever a file holds
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except ValueError as error:
            raise ValueError(f"label is no JSON: {error}") from None
    if not isinstance(label, dict):
        raise ValueError(f"label must be an object with unit tests, found {type(label).__name__}")
    return label


def _pairs(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(inputs) != len(outputs):
        raise ValueError(f"label has {len(inputs)} inputs and {len(outputs)} outputs")
    return list(zip(inputs, outputs, strict=True))


def _texts(given: Any, expected: Any) -> tuple[str, str]:  # noqa: ANN401 - whatever a file holds
    if not isinstance(given, str) or not isinstance(expected, str):
        raise ValueError("label: inputs and outputs of a program must be text; those of a function need 'fn_name'")
    return given, expected


def _call(name: str, arguments: Any, expected: Any) -> Case:  # noqa: ANN401 - whatever a file holds
    if not isinstance(arguments, list):
        raise ValueError(f"label: each input of function '{name}' must be a list of arguments, found {arguments!r}")
    return {"name": name, "arguments": arguments, "expected": expected}


def _coded(code: Any, name: Any) -> Case:  # noqa: ANN401 - whatever a file holds
    if not name:
        return _parsed(code)
    if not isinstance(name, str):
        raise ValueError(f"label: 'fn_name' must be the name of a function, found {name!r}")
    return {"name": name, "code": _parsed(code)}


def _parsed(code: Any) -> str:  # noqa: ANN401 - whatever a file holds
    if not isinstance(code, str):
        raise ValueError(f"label: each of 'tests' must be code as text, found {type(code).__name__}")
    try:
        ast.parse(code)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"label: a test is no Python: {error}") from None
    return code
