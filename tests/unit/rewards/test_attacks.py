"""Programs of attacks.py against every isolation of this machine: reward 0, with a reason, and nothing crosses."""

import ctypes.util
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from sestina.rewards.sandbox.launcher import NOBODY
from tests.unit.rewards.attacks import CALLS, HARMLESS, STDIN
from tests.unit.rewards.helpers import code, isolating, sample

WISHED = {"inputs": ["1\n", "input of the second test\n"], "outputs": ["escaped\n", "escaped\n"]}
"""A reward for whoever gets out."""
TESTS = {"tests": ["assert answer(1) == 42 and len([answer(2)]) == 1", "assert abs(answer(3) - 42) < 1"]}
NEEDS_FILTER = {"fills memory with nameless files", "fills memory with shared segments"}


@dataclass
class Host:
    """What there is to reach, and to harm."""

    secret: Path
    port: int
    abstract: str
    victim: subprocess.Popen

    def program(self, name):
        text = STDIN[name].replace("{{", "{").replace("}}", "}")
        for key, value in [("secret", self.secret), ("port", self.port), ("abstract", self.abstract)]:
            text = text.replace("{" + key + "}", str(value))
        return text.replace("{victim}", str(self.victim.pid))

    def unharmed(self):
        return self.secret.read_text() == "secret" and self.victim.poll() is None


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("secret")
    for folder in (secret, *secret.parents):
        if folder.owner() == secret.owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    abstract = f"sestina-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{abstract}")
        unix.listen()
        owner = NOBODY if os.geteuid() == 0 else None  # whom a program of root's is outside
        with subprocess.Popen(["sleep", "600"], user=owner) as victim:
            yield Host(secret=secret, port=listener.getsockname()[1], abstract=abstract, victim=victim)
            victim.kill()


@pytest.fixture(scope="module", params=["namespaces", "bubblewrap"])
def rule(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET", "secret")
        # Where bubblewrap runs as nobody, an interpreter below somebody's home is out of its reach.
        python = "/usr/bin/python3" if request.param == "bubblewrap" and Path("/usr/bin/python3").exists() else None
        yield isolating(request.param, python=python)


@pytest.mark.parametrize("name", STDIN)
def test_a_program_that_attacks(rule, host, name):
    if name in NEEDS_FILTER and ctypes.util.find_library("seccomp") is None:
        pytest.skip("libseccomp is not installed: this needs its filter")
    before = children()
    verdict = rule(sample(code(host.program(name)), WISHED))
    assert verdict.reward == 0
    assert verdict.notes[0] in {"wrong_output", "crashed", "time", "memory", "output"}
    assert len(verdict.reason) > len(f"{verdict.notes[0]}: ")
    assert host.unharmed()
    assert children() == before


@pytest.mark.parametrize("name", CALLS)
def test_a_function_that_attacks(rule, host, name):
    before = children()
    verdict = rule(sample(code(CALLS[name]), TESTS))
    assert verdict.reward == 0
    assert verdict.notes[0] in {"failed_test", "crashed", "time", "memory", "output"}
    assert len(verdict.reason) > len(f"{verdict.notes[0]}: ")
    assert host.unharmed()
    assert children() == before


@pytest.mark.parametrize("name", HARMLESS)
def test_without_a_sandbox_it_would_have_escaped(host, name, tmp_path, monkeypatch):
    """Else the tests above would prove nothing."""
    if name == "kills a process of the host":
        victim = subprocess.Popen(["sleep", "600"])
        host = Host(secret=host.secret, port=host.port, abstract=host.abstract, victim=victim)
    monkeypatch.setenv("SECRET", "secret")
    with socket.socket() as leaked:
        command = [sys.executable, "-c", host.program(name)]
        known = {"cwd": tmp_path, "pass_fds": (leaked.fileno(),)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **known)
    if name == "kills a process of the host":
        victim.wait()
    assert "escaped" in done.stdout


def children():
    """The processes that descend from this one."""
    return {child.pid for child in psutil.Process().children(recursive=True)}
