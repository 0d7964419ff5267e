import asyncio
import contextlib
import json
import os
import time
from dataclasses import replace

import psutil
import pytest

from sestina.core.errors import AbsentError
from sestina.rewards.code import _stdin, last_block
from sestina.rewards.pool import RewardPool
from sestina.rewards.rules import check
from sestina.rewards.sandbox.isolation import isolated
from sestina.rewards.tests import read_tests
from tests.unit.rewards.helpers import code, code_config, isolating, sample

ADD = "def add(a, b):\n    return a + b"
ROOMY_S = 60.0


@pytest.fixture(scope="module")
def rule():
    return isolating(run_s=ROOMY_S, cpu_s=30)


SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
CALLED = {"fn_name": "add", "inputs": [[1, 2], [[1], [2]]], "outputs": [3, [1, 2]]}
ASSERTED = {"tests": ["assert add(1, 2) == 3", "import math\nassert math.isclose(add(0.1, 0.2), 0.3)"]}
CHECKED = {
    "tests": "def check(candidate):\n    for i in range(9):\n        assert candidate(i, i) == 2 * i\ncheck(add)"
}
PRINTS = {"tests": "import os\nprint(add(1, 2))\nos.write(1, b'x' * 99)\nassert add(3, 4) == 7"}
RAISES = {"tests": "try:\n    add(1, 'x')\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError"}


@pytest.mark.parametrize(
    ("response", "label"),
    [
        ("print(sum(map(int, input().split())))", SUMS),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())), '  \\n\\n')", json.dumps(SUMS)),
        (ADD, CALLED),
        ("class Solution:\n    def add(self, a, b):\n        return a + b", CALLED),
        (ADD + "\nprint('hello')\nimport sys; print(sys.stdin.read())", ASSERTED),
        (ADD, CHECKED),
        (ADD, RAISES),
        (ADD, PRINTS),
        ("def sum(a, b): return a + b", {"fn_name": "sum", "tests": "assert sum(1, 2) == 3"}),
        ("class Solution:\n    def max(self, a): return 5", {"fn_name": "max", "tests": ["assert max(1) == 5"]}),
        (
            "def pair(x): return (x, {x: None}, {x}, b'x', float('inf'))",
            {"tests": "assert pair(1)[4] > 9 and pair(1)[0] == 1"},
        ),
        (
            "import numpy\ndef ones(n): return numpy.ones(n)",
            {"fn_name": "ones", "inputs": [[2]], "outputs": [[1.0, 1.0]]},
        ),
        ("def swap(a, b): return b, a", {"fn_name": "swap", "inputs": [[1, 2]], "outputs": [[2, 1]]}),
    ],
)
def test_what_passes(rule, response, label):
    verdict = rule(sample(code(response), label))
    assert (verdict.reward, verdict.notes[0]) == (1, "passed"), verdict.reason


@pytest.mark.parametrize(
    ("response", "label", "finding", "said"),
    [
        ("print(3)", SUMS, "wrong_output", "test 2 of 2"),
        ("print(3)\nraise SystemExit(4)", SUMS, "crashed", "exit code 4"),
        ("1 / 0", SUMS, "crashed", "ZeroDivisionError: division by zero"),
        ("def add(a, b): return a", CALLED, "failed_test", "test 1 of add"),
        ("def sub(a, b): return a", CALLED, "failed_test", "NameError: name 'add' is not defined"),
        ("sub = 1", {"fn_name": "sum", "tests": "sum([1])"}, "failed_test", "NameError: name 'sum' is not defined"),
        ("def add(a, b): return 4", ASSERTED, "failed_test", "AssertionError"),
        ("1 / 0", ASSERTED, "crashed", "ZeroDivisionError: division by zero"),
        ("def add(a, b): raise ValueError('no such sum')", ASSERTED, "failed_test", "ValueError: no such sum"),
        ("x = [0] * 10**9", SUMS, "memory", "MemoryError"),
    ],
)
def test_what_fails_says_why(rule, response, label, finding, said):
    verdict = rule(sample(code(response), label))
    assert (verdict.reward, verdict.notes[0]) == (0, finding), verdict.reason
    assert said in verdict.reason


def test_a_program_that_takes_too_long():
    verdict = isolating(run_s=0.5)(sample(code("while True: pass"), SUMS))
    assert (verdict.reward, verdict.reason) == (0, "time: a limit of the sandbox was met")


def slow_to_start(start_s, roles=("script", "serve", "test")):
    """A sandbox that takes as long to be there, in some roles."""
    isolating()
    sandbox = isolated(code_config()).sandbox

    def slow(inner, **known):
        command = sandbox.isolate(inner, **known)
        wait = ["/bin/sh", "-c", f'sleep {start_s}; exec "$@"', "sh"]
        return [*wait, *command] if inner[-2] in roles else command

    return replace(sandbox, isolate=slow)


def test_no_program_is_charged_for_the_start_of_its_sandbox():
    ended = slow_to_start(3).run("print('inside')", b"", 2.5)
    assert (ended.met, ended.stdout) == (None, b"inside\n")


def test_no_time_left_for_a_later_test_is_too_slow():
    slow = "import time\ntime.sleep(2.5 if input() == '1 2' else 60)\nprint(3)"
    assert _stdin(slow_to_start(1), slow, read_tests(SUMS), 4.0)[0] == "time"


def test_a_limit_met_while_the_response_is_defined_is_no_failure_of_the_sandbox():
    floods = "import sys\nwhile True: sys.stderr.write('x' * 65536)"
    response, _ = slow_to_start(2, ["test"]).test(floods, json.dumps(["add(1, 2)"]), ROOMY_S)
    assert response.met == "output"


def test_the_same_program_hashes_text_alike_every_time():
    isolating()
    sandbox = isolated(code_config()).sandbox
    first, second = (sandbox.run("print(hash('a'), __import__('sys').path)", b"", ROOMY_S).stdout for _ in range(2))
    assert first == second
    assert b"''" not in first


def test_memory_is_that_of_all_processes_together(rule):
    many = (
        "import os, time\nfor _ in range(8):\n    if not os.fork():\n        x = b'x' * (100 << 20); time.sleep(60)\n"
    )
    verdict = rule(sample(code(f"{many}time.sleep(60)"), SUMS))
    assert (verdict.reward, verdict.notes[0]) == (0, "memory")


def test_a_response_without_code(rule):
    verdict = rule(sample("It is 3. ```python\nprint(3)", SUMS))
    assert (verdict.reward, verdict.notes[0]) == (0, "no_code")


@pytest.mark.parametrize(
    ("response", "block"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```\nor\n```py\nb\n```\n", "b\n"),
        ("```Python3 \r\na\n```", "a\n"),
        ("``` python\na\n```", "a\n"),
        ("```python\na", None),
        ("```python\na\n```\n```bash\nls\n```\nand so it ends\n", "a\n"),
        ("```bash\nls\n```\nthen\n```python\na\n```", "a\n"),
        ("```python\nnot closed\n```python\na\n```", "a\n"),
        ("  ```python title=x\n  a\n  ```", "  a\n"),
        ("````python\nprint('`')\n````", "print('`')\n"),
        ("```" + " " * 200_000 + "x`", None),
        ("print(1)", None),
    ],
)
def test_the_last_closed_block_counts(response, block):
    assert last_block(response) == block


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("no", "label is no JSON: "),
        (3, "label must be an object with unit tests, found int"),
        ({}, r"it has \[\]"),
        ({"inputs": [], "outputs": []}, r"at least one of each; it has \['inputs', 'outputs'\]"),
        ({"tests": []}, "at least one of each"),
        ({"inputs": ["1"], "outputs": []}, "label has 1 inputs and 0 outputs"),
        ({"inputs": [[1]], "outputs": [1]}, "those of a function need 'fn_name'"),
        ({"fn_name": "f", "inputs": [1], "outputs": [1]}, "each input of function 'f' must be a list of arguments"),
        ({"tests": "assert ="}, "label: a test is no Python: "),
        ({"tests": "assert f()", "fn_name": 1}, "'fn_name' must be the name of a function, found 1"),
        ({"tests": [1]}, "each of 'tests' must be code as text, found int"),
    ],
)
def test_a_label_that_holds_no_tests(label, reason):
    with pytest.raises(ValueError, match=reason):
        read_tests(label)


def test_code_in_a_worker_of_a_pool():
    isolating(run_s=ROOMY_S)

    async def work():
        async with RewardPool(code_config(run_s=ROOMY_S, timeout_s=2 * ROOMY_S)) as pool:
            return [await pool.score(sample(text, CALLED)) for text in (code(ADD), "no code")] + [
                await pool.score(sample(code(ADD), "no tests"))
            ]

    right, wrong, broken = asyncio.run(work())
    assert (right.reward, right.kind, right.error, right.notes[0]) == (1, "ok", "passed: 2 tests", "passed")
    assert (wrong.reward, wrong.kind, wrong.notes[0]) == (0, "ok", "no_code")
    assert right.notes[1].startswith("isolation_")
    assert (broken.kind, broken.error.partition(":")[0]) == ("raised", "ValueError")


def test_a_sandbox_ends_with_the_worker_that_runs_it():
    isolating(run_s=ROOMY_S)
    mark = (16 << 20) + os.getpid()  # on the command lines of this test's sandbox alone

    async def work():
        async with RewardPool(code_config(run_s=ROOMY_S, cpu_s=60, timeout_s=6.0, disk_bytes=mark)) as pool:
            scoring = asyncio.create_task(pool.score(sample(code("import time\ntime.sleep(60)"), SUMS)))
            while not sandboxed(mark):
                await asyncio.sleep(0.05)
            return await scoring

    assert asyncio.run(work()).kind == "timeout"
    deadline = time.monotonic() + 20
    while left := sandboxed(mark):
        assert time.monotonic() < deadline, f"waited 20 s for {left} to end"
        time.sleep(0.05)


def sandboxed(mark):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(mark) in str(process.cmdline()):
                found.append(process.pid)
    return found


def test_where_nothing_isolates_the_start_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AbsentError) as error:
        check(code_config("bubblewrap"))
    assert error.value.violations == [
        "reward.isolation: 'bubblewrap': code that a model wrote is not run without: "
        "bubblewrap: there is no bwrap on the path"
    ]


def test_an_isolation_that_does_not_come_up_is_named(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    broken.chmod(0o755)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(AbsentError, match="bubblewrap: exit code 1 before a program began: no namespaces here"):
        check(code_config("bubblewrap"))


def test_an_interpreter_that_does_not_run():
    with pytest.raises(AbsentError, match=r"reward.python: '/nowhere/python' does not run: "):
        check(code_config(python="/nowhere/python"))
