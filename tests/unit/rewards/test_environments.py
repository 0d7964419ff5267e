"""What answers between turns: the calculator, and tools of a user's, in real worker processes."""

import asyncio
import math

import pytest

from sestina.core.errors import ConfigError
from sestina.rewards.environments.calculator import MAX_DIGITS, calculate
from sestina.rewards.environments.config import NO_ENVIRONMENT, CalculatorConfig, ToolConfig
from sestina.rewards.pool import RewardPool
from sestina.rewards.rules import check_environment
from tests.unit.rewards.helpers import MODULE, sample


def calculator(modulus=0):
    return CalculatorConfig(
        kind="calculator",
        turn_end="=",
        modulus=modulus,
        max_turns=4,
        max_observation_tokens=8,
        num_workers=2,
        timeout_s=20.0,
    )


def tool(name, *, timeout_s=20.0, path=None):
    return ToolConfig(
        kind="tool",
        path=path or f"{MODULE}:{name}",
        turn_end="=",
        max_turns=4,
        max_observation_tokens=8,
        num_workers=1,
        timeout_s=timeout_s,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2", "3"),
        ("so it is 12 * 3+4", "40"),
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("First, 2+3", "5"),
        ("3-5", "-2"),
        ("-3*-5", "15"),
        ("l8+3=1;m1+1", "2"),
        (f"{10 ** (MAX_DIGITS - 1)}*9", f"9{'0' * (MAX_DIGITS - 1)}"),
    ],
)
def test_sums_and_products_at_the_end_of_a_text(text, value):
    assert calculate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "7", "-7", "a", "1+", "+", "1++2", "1 2", "007+1", "2**9", "(1+2", "1/2", "1.5+1", "1.5-1+1", "1/2+3",
        "1,000+1", "x.5+1", "9%5+1", "2^3+1", "(" * 150 + "1+1" + ")" * 40, "1+2 ;", "f(1)",
        "__import__('os').getpid()", f"1{'0' * MAX_DIGITS}+1", "9*" * 40 + "9", "1+" * 200 + "1",
    ],
)  # fmt: skip
def test_nothing_else_is_evaluated(text):
    assert calculate(text) == ""


def test_a_modulus_is_of_the_answer():
    assert calculate("8+3", modulus=10) == "1"
    assert calculate("3-5", modulus=10) == "8"


def asked(config, *samples):
    async def main():
        async with asyncio.timeout(60), RewardPool(config) as pool:
            return [await pool.score(each) for each in samples], pool.counts()

    return asyncio.run(main())


def test_a_calculator_answers_what_stands_before_the_end_of_the_turn():
    (right, nothing), counts = asked(calculator(modulus=10), sample("k9+4="), sample("l8="))
    assert (right.text, nothing.text) == ("3", "")
    assert (right.kind, right.error) == ("ok", None)
    assert math.isnan(right.reward)
    assert counts["ok"] == 2


@pytest.mark.parametrize("name", ["counting", "counting_async"])
def test_a_tool_of_the_users(name):
    check_environment(tool(name))
    (seven, nothing), _ = asked(tool(name), sample("1234567"), sample("123"))
    assert (seven.text, nothing.text) == ("7", "")


def test_what_a_tool_can_do_wrong_is_said():
    cases = ({"breaks": True}, {"says": "number"}, {"says": "long"})
    (raised, number, fine), counts = asked(tool("breaking"), *(sample(meta=meta) for meta in cases))
    assert (raised.text, raised.kind, raised.error) == (None, "raised", "ValueError: the tool is broken")
    assert (number.text, number.error) == (None, "ValueError: the tool must return text, it returned int")
    assert fine.text == "7" * 500
    assert (counts["raised"], counts["ok"]) == (2, 1)


def test_a_tool_that_hangs_is_ended():
    (late,), counts = asked(tool("hanging", timeout_s=0.5), sample())
    assert (late.text, late.kind, counts["timeout"]) == (None, "timeout", 1)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere_at_all:f", "environment.path: 'nowhere_at_all:f': module 'nowhere_at_all' not found"),
        ("math", "environment.path: 'math': expected 'package.module:name'"),
        (f"{MODULE}:count_ing", "did you mean 'counting'?"),
        (
            "json:dumps",
            "environment.path: 'json:dumps' is called with prompt, response, label, meta: missing a required",
        ),
    ],
)
def test_a_tool_that_cannot_be_called_is_refused_before_the_run(path, said):
    with pytest.raises(ConfigError) as error:
        check_environment(tool("", path=path))
    assert said in error.value.violations[0]


def test_what_needs_no_import_passes():
    check_environment(calculator())
    check_environment(NO_ENVIRONMENT)
