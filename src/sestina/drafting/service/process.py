"""A draft server as the process that starts it sees it: started, watched, ended."""

import os
import select
import subprocess
import sys
import time
from typing import Self

import msgspec

from sestina.core.errors import DeadlineError, RunError
from sestina.core.units import Seconds
from sestina.drafting.service.settings import ServerSettings
from sestina.transport.parent import environment

COMMAND = (sys.executable, "-m", "sestina.drafting.server")
START_LIMIT_S = 60.0
LEAVE_LIMIT_S = 5.0
"""For a server whose stdin has ended, before it is killed."""
KILL_LIMIT_S = 10.0


class ServerError(RunError):
    """A draft server ended before it had an address."""


class ServerProcess:
    """One server; what it writes to stderr is this process's."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self.address = address
        self._process = process

    @classmethod
    def start(cls, settings: ServerSettings, *, limit_s: Seconds = START_LIMIT_S) -> Self:
        """Start a server and return it once it can be reached; raises ServerError, DeadlineError."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, env=environment(), process_group=0)
        try:
            return cls(process, _address(process, settings, limit_s))
        except RunError:
            _end(process)
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._process.poll() is None

    def end(self) -> int:
        """End it; returns its exit code, raises DeadlineError when the kernel does not end it."""
        return _end(self._process)


def _address(process: "subprocess.Popen[bytes]", settings: ServerSettings, limit_s: Seconds) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    deadline, line = time.monotonic() + limit_s, b""
    try:
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # It has ended; that shows at its stdout.
    while not line.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise DeadlineError(f"the address of draft server {process.pid}", limit_s)
        read = os.read(process.stdout.fileno(), 4096)
        if not read:
            raise ServerError(f"draft server {process.pid} ended with exit code {process.wait()} before it served")
        line += read
    return msgspec.json.decode(line, type=dict[str, str])["address"]


def _end(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        return process.wait(LEAVE_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        return process.wait(KILL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"draft server {process.pid} to end after SIGKILL", KILL_LIMIT_S) from None
