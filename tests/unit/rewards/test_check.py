import pytest

from sestina.core.errors import ConfigError
from sestina.rewards.rules import check
from tests.unit.rewards.helpers import EXACT, MATH, MODULE, function


def fault(config):
    with pytest.raises(ConfigError) as error:
        check(config)
    (violation,) = error.value.violations
    return violation


@pytest.mark.parametrize(
    "config",
    [EXACT, MATH, function("native"), function("verl_async", "verl"), function("trl", "trl"), function("builtins:max")],
)
def test_what_can_be_called_passes(config):
    check(config)


@pytest.mark.parametrize(
    "path", ["math", "math.sqrt", "math:", ":sqrt", "math:a.b", "a-b:c", "a..b:c", "a:b:c", "a/b:c"]
)
def test_a_malformed_path(path):
    path = path if ":" in path else f"{path}:"  # the helper completes names without a colon
    assert fault(function(path)) == f"reward.path: '{path}': expected 'package.module:name'"


def test_a_path_without_a_colon():
    config = function("x:y")
    config = type(config)(kind="function", path="math.sqrt", signature="native", num_workers=1, timeout_s=1)
    assert fault(config) == "reward.path: 'math.sqrt': expected 'package.module:name'"


def test_a_module_that_is_not_there(tmp_path, importable):
    found = fault(function("nowhere.rewards:f"))
    assert found.startswith(f"reward.path: 'nowhere.rewards:f': module 'nowhere' not found in {tmp_path}")
    assert "module 'tests.unit.nowhere' not found" in fault(function("tests.unit.nowhere:f"))


def test_a_name_that_is_not_there_gets_a_suggestion():
    assert fault(function("nativ")).endswith(f"module '{MODULE}' has no 'nativ'; did you mean 'native'?")
    assert fault(function("qqqqqq")).endswith("has no 'qqqqqq'")


def test_a_name_of_something_else():
    assert fault(function("NOT_CALLABLE")).endswith("'NOT_CALLABLE' is not callable, it is float 0.5")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
    ],
)
def test_a_module_that_fails_on_import_is_shown_with_its_traceback(importable, source, error):
    importable("failing", source)
    found = fault(function("failing:f"))
    assert found.startswith("reward.path: 'failing:f': importing it failed: ")
    assert error in found
    assert "failing.py" in found


def test_the_working_directory_comes_first(importable):
    importable("in_the_working_directory", "def f(prompt, response, label, meta): return 1")
    check(function("in_the_working_directory:f"))


@pytest.mark.parametrize(
    ("name", "signature", "reason"),
    [
        ("verl", "native", r"'native' calls '.*:verl' with prompt, response, label, meta: "),
        ("native", "verl", r"'verl' calls '.*:native' with data_source, solution_str, ground_truth, extra_info: "),
        ("native", "trl", r"'trl' calls '.*:native' with completions, prompts, label: "),
    ],
)
def test_a_function_of_another_signature_is_found_before_the_run(name, signature, reason):
    with pytest.raises(ConfigError, match=f"reward.signature: {reason}"):
        check(function(name, signature))
