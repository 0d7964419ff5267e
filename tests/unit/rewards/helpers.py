import subprocess
from functools import cache
from pathlib import Path

import pytest

from sestina.core.errors import AbsentError
from sestina.rewards.code import code_rule
from sestina.rewards.config import CodeConfig, ExactConfig, FunctionConfig, JudgeConfig, MathConfig, RemoteConfig
from sestina.rewards.functions import Signature
from sestina.rewards.messages import Sample

MODULE = "tests.unit.rewards.functions"
EXACT = ExactConfig(kind="exact", answer_mark="####", num_workers=1, timeout_s=5)
MATH = MathConfig(kind="math", num_workers=1, timeout_s=5)


def function(name, signature: Signature = "native", *, num_workers=1, timeout_s=5.0):
    path = name if ":" in name else f"{MODULE}:{name}"
    return FunctionConfig(kind="function", path=path, signature=signature, num_workers=num_workers, timeout_s=timeout_s)


def sample(response="r", label: object = "l", meta=None, prompt="p"):
    return Sample(prompt=prompt, response=response, label=label, meta=meta or {})


def running(pid):
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--net", "--ipc", "--uts", "true")
"""Succeeds where namespaces can be had."""


def code_config(isolation="auto", **changes):
    small = {"run_s": 4.0, "cpu_s": 3, "memory_bytes": 384 << 20, "disk_bytes": 16 << 20, "output_bytes": 1 << 20}
    usual = {"python": None, "max_processes": 24, "num_workers": 1, "timeout_s": 30.0}
    return CodeConfig(kind="code", isolation=isolation, **(small | usual | changes))


@cache
def isolating(isolation="auto", **changes):
    """The rule under an isolation; skips the test where this machine cannot have it."""
    try:
        return code_rule(code_config(isolation, **changes))
    except AbsentError as error:
        possible = isolation != "bubblewrap" and subprocess.run(UNSHARE, capture_output=True, check=False)
        if possible and possible.returncode == 0:
            raise
        pytest.skip(str(error))


def judge_config(url, **changes):
    usual = {"model": "m", "rubric": "Be strict.", "min_score": 0.0, "max_score": 10.0, "temperature": 0.0}
    usual |= {"max_reply_tokens": 64, "key_env": None, "key_file": None, "max_attempts": 4, "max_requests": 0}
    usual |= {"max_tokens": 0, "num_workers": 2, "timeout_s": 20.0}
    return JudgeConfig(kind="judge", url=url, **(usual | changes))


def remote_config(url, **changes):
    usual = {"key_env": "TOKEN", "key_file": None, "max_attempts": 20, "num_workers": 2, "timeout_s": 30.0}
    return RemoteConfig(kind="remote", url=url, **(usual | changes))


def code(text):
    """A response that holds a program."""
    return f"Let me think.\n```python\n{text}\n```\n"
