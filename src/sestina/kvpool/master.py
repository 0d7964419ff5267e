"""Mooncake's master of one run: a process that ends with the one that started it.

python -m sestina.kvpool.master ARGUMENTS...    becomes mooncake_master, once its end is its parent's
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from sestina.core.errors import DeadlineError, RunError
from sestina.core.units import Seconds
from sestina.transport.parent import end_with_parent, environment

ADDRESS = "SESTINA_KV_MASTER"
"""Variable by which the launcher tells the ranks where the run's own master is."""

START = "SESTINA_KV_START"
"""Variable by which the launcher tells the ranks of one start from those of another."""

HOST = "127.0.0.1"
START_S: Seconds = 20.0
_LOOK_S: Seconds = 0.05


class Master:
    """One mooncake_master on the loopback interface."""

    def __init__(self, log: Path) -> None:
        """Start it and return when it answers; raises RunError when it ends before, DeadlineError."""
        port, metrics_port = _free_ports()
        self.address, self.log = f"{HOST}:{port}", log
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = (
            f"--rpc_address={HOST}",
            f"--rpc_port={port}",
            f"--metrics_host={HOST}",
            f"--metrics_port={metrics_port}",
        )
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sestina.kvpool.master", *arguments],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with ExitStack() as failing:
            failing.callback(self.end)
            self._wait(port)
            failing.pop_all()  # it ends with this object from here on

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + START_S
        while True:
            if self.exit_code is not None:
                raise RunError(f"mooncake_master ended with exit code {self.exit_code}; its log: {self.log}")
            try:
                return socket.create_connection((HOST, port), _LOOK_S).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise DeadlineError(f"mooncake_master to answer; its log: {self.log}", START_S) from None
                time.sleep(_LOOK_S)


def binary() -> Path:
    """Return mooncake_master, which the package brings; raises ImportError without the package."""
    spec = find_spec("mooncake")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'mooncake'")
    return Path(spec.origin).with_name("mooncake_master")


def _free_ports() -> tuple[int, int]:
    first, second = (socket.create_server((HOST, 0)) for _ in range(2))
    with first, second:
        return first.getsockname()[1], second.getsockname()[1]


if __name__ == "__main__":
    end_with_parent()
    os.execv(binary(), [str(binary()), *sys.argv[1:]])
