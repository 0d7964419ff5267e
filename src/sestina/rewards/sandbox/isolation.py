"""Which isolation this machine has: tried out, never assumed."""

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.errors import AbsentError
from sestina.rewards.config import CodeConfig
from sestina.rewards.sandbox import bubblewrap, namespaces
from sestina.rewards.sandbox.launcher import NOBODY
from sestina.rewards.sandbox.sandbox import Isolate, Limits, Sandbox, SandboxError

Name: TypeAlias = Literal["bubblewrap", "namespaces"]
_COMMANDS: dict[Name, Isolate] = {"bubblewrap": bubblewrap.command, "namespaces": namespaces.command}

TRIAL_LIMIT_S = 30.0
"""For a program that prints one word."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolated:
    """A sandbox that has run a program, and what isolates it."""

    name: Name
    sandbox: Sandbox


def isolated(config: CodeConfig) -> Isolated:
    """Return the first isolation that works; raises AbsentError with what keeps each from it when none does."""
    names: tuple[Name, ...] = ("bubblewrap", "namespaces") if config.isolation == "auto" else (config.isolation,)
    reasons: list[str] = []
    for name in names:
        sandbox = _sandbox(config, name)
        if reason := _trial(sandbox, name):
            reasons.append(f"{name}: {reason}")
            continue
        _log.info("code of responses is run isolated by %s", name)
        return Isolated(name=name, sandbox=sandbox)
    raise AbsentError(
        [f"reward.isolation: '{config.isolation}': code that a model wrote is not run without: {'; '.join(reasons)}"]
    )


def _sandbox(config: CodeConfig, name: Name) -> Sandbox:
    python = config.python or sys.executable
    return Sandbox(
        isolate=_COMMANDS[name],
        python=python,
        binds=_binds(python),
        limits=Limits(
            cpu_s=config.cpu_s,
            memory_bytes=config.memory_bytes,
            disk_bytes=config.disk_bytes,
            output_bytes=config.output_bytes,
            max_processes=config.max_processes,
        ),
        # The kernel exempts root from the limit on processes, whatever root is called inside; launcher.py sees to that.
        user=NOBODY if name == "bubblewrap" and os.geteuid() == 0 else None,
    )


def _trial(sandbox: Sandbox, name: Name) -> str | None:
    """Return why a sandbox does not work."""
    if name == "bubblewrap" and shutil.which("bwrap") is None:
        return "there is no bwrap on the path"
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        return "this kernel does not list a process's children, by which memory is watched (CONFIG_PROC_CHILDREN)"
    try:
        ended = sandbox.run("print('inside')", b"", TRIAL_LIMIT_S)
    except SandboxError as error:
        return str(error)
    if ended.stdout != b"inside\n":
        return f"a first program ended with exit code {ended.code}: {ended.stderr}"
    return None


@cache
def _binds(python: str) -> tuple[str, ...]:
    """Return what an interpreter needs of this machine's files; raises AbsentError when it does not run."""
    asked = [python, "-I", "-c", "import sys; print(sys.prefix); print(sys.base_prefix)"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=TRIAL_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise AbsentError([f"reward.python: '{python}' does not run: {error}"]) from None
    folders = ["/usr", *(folder for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64") if _real(folder))]
    folders += [prefix for prefix in dict.fromkeys(said.split("\n")) if prefix and not f"{prefix}/".startswith("/usr/")]
    cache_file = "/etc/ld.so.cache"
    return tuple([folder for folder in folders if folder != "/usr" or Path(folder).is_dir()]) + (
        (cache_file,) if Path(cache_file).exists() else ()
    )


def _real(folder: str) -> bool:
    return Path(folder).is_dir() and not Path(folder).is_symlink()
