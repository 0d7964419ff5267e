"""Programs graded by the unit tests of their prompt, in a sandbox."""

import json
import re
from collections.abc import Callable

from sestina.core.seconds import Seconds
from sestina.rewards.config import CodeConfig
from sestina.rewards.messages import Sample
from sestina.rewards.outcome import Verdict
from sestina.rewards.sandbox.inside import FAILED
from sestina.rewards.sandbox.isolation import Isolated, isolated
from sestina.rewards.sandbox.sandbox import Ended, Sandbox
from sestina.rewards.tests import CallTests, StdinTests, read_tests

_FENCE = re.compile(r"`{3,}+([^`]*+)")
"""Possessive, since a response may be one long line of blanks."""
_LANGUAGES = ("", "py", "python", "python3")
_CPU_EXCEEDED = 128 + 24
"""Exit status after SIGXCPU."""


def code_rule(config: CodeConfig) -> Callable[[Sample], Verdict]:
    """Return the rule; raises AbsentError when nothing isolates here."""
    found = isolated(config)

    def rule(sample: Sample) -> Verdict:
        tests = read_tests(sample.label)
        code = last_block(sample.response)
        if code is None:
            return _verdict(found, "no_code", "the response has no closed code block")
        match tests:
            case StdinTests():
                return _verdict(found, *_stdin(found.sandbox, code, tests, config.run_s))
            case CallTests():
                return _verdict(found, *_calls(found.sandbox, code, tests, config.run_s))

    return rule


def last_block(response: str) -> str | None:
    """Return the last closed block of a response between fences, in Python or in no language named."""
    found, language = None, None
    lines: list[str] = []
    for line in response.split("\n"):
        fence = _FENCE.fullmatch(line.strip())
        info = fence[1].strip() if fence else ""
        if fence and (language is None or info):  # One with a language, before the last was closed, begins anew.
            language, lines = info.partition(" ")[0].lower(), []
        elif fence:
            found = "\n".join([*lines, ""]) if language in _LANGUAGES else found
            language = None
        else:
            lines.append(line)
    return found


def _verdict(found: Isolated, finding: str, reason: str) -> Verdict:
    return Verdict(
        reward=float(finding == "passed"), reason=f"{finding}: {reason}", notes=(finding, f"isolation_{found.name}")
    )


def _stdin(sandbox: Sandbox, code: str, tests: StdinTests, limit_s: Seconds) -> tuple[str, str]:
    left_s = limit_s
    for number, (given, expected) in enumerate(tests.pairs, start=1):
        if left_s <= 0:
            return "time", f"no time was left for test {number} of {len(tests.pairs)}"
        ended = sandbox.run(code, given.encode(), left_s)
        left_s -= ended.ran_s
        if trouble := _trouble(ended):
            return trouble
        if not _same(ended.stdout.decode(errors="replace"), expected):
            return "wrong_output", f"test {number} of {len(tests.pairs)}"
    return "passed", f"{len(tests.pairs)} tests"


def _calls(sandbox: Sandbox, code: str, tests: CallTests, limit_s: Seconds) -> tuple[str, str]:
    response, tester = sandbox.test(code, json.dumps(tests.cases), limit_s)
    if tester.met is None and tester.code == 0:
        return "passed", f"{len(tests.cases)} tests"
    if trouble := _trouble(response):
        return trouble
    if tester.code != FAILED:
        return "crashed", f"what the response returned ended the tests with exit code {tester.code}: {tester.stderr}"
    return "failed_test", tester.stderr


def _trouble(ended: Ended) -> tuple[str, str] | None:
    """Return how a program failed by itself."""
    if ended.met or ended.code == _CPU_EXCEEDED:
        return ended.met or "time", "a limit of the sandbox was met"
    if not ended.code:
        return None
    return "memory" if "MemoryError" in ended.stderr else "crashed", f"exit code {ended.code}: {ended.stderr}"


def _same(output: str, expected: str) -> bool:
    """Compare lines; blanks at the end of a line or of the text do not count."""
    found, wanted = ([line.rstrip() for line in text.rstrip().splitlines()] for text in (output, expected))
    return found == wanted
