"""The draft servers of a run, each started, watched and started again in a thread of its own."""

import contextlib
import logging
import time
from collections.abc import Sequence
from threading import Event, Thread

import msgspec

from sestina.core.errors import RunError
from sestina.core.units import Seconds
from sestina.drafting.service.process import KILL_LIMIT_S, LEAVE_LIMIT_S, START_LIMIT_S, ServerProcess
from sestina.drafting.service.settings import ServerSettings

_log = logging.getLogger(__name__)

LOOK_S: Seconds = 0.1
"""Between two looks at a server."""
STEADY_S: Seconds = 10.0
"""A server that lived for less counts as a failure."""
MAX_FAILURES = 3
"""In a row; then its groups go without a server until the run ends."""


class Shard:
    """One server at any time, at the same address if it can be; clients bring again what one of its lives has lost."""

    def __init__(self, number: int, settings: ServerSettings) -> None:
        """Begin to start the server; returns at once."""
        self.address = ""
        """Empty until a server is there, and when it has been given up."""
        self.restarts = 0
        """Servers that took another's place."""
        self.lost = False
        """Given up."""
        self._name = f"draft server {number}"
        self._settings = settings
        self._closing = Event()
        # The kernel ends a server with the thread that has started it, so that has to last as long.
        self._thread = Thread(target=self._keep, name=self._name, daemon=True)
        self._thread.start()

    def ask_to_end(self) -> None:
        """Begin to end it; returns at once."""
        self._closing.set()

    def wait(self) -> None:
        """Return when it has ended; after some time all the same: it ends with this process."""
        self._thread.join(LEAVE_LIMIT_S + KILL_LIMIT_S)

    def _keep(self) -> None:
        failures, served = 0, False
        while not self._closing.is_set() and failures < MAX_FAILURES:
            server = self._start()
            began_s = time.monotonic()
            if server is not None:
                self.restarts += served
                served = True
                self._serve(server)
            failures = 1 if time.monotonic() - began_s > STEADY_S else failures + 1
        if not self._closing.is_set():
            self.address, self.lost = "", True
            _log.warning(
                "%s failed %d times in a row and is given up; its groups' drafts stay local", self._name, failures
            )

    def _start(self) -> ServerProcess | None:
        """Start a server where the last one was, or anywhere when that fails."""
        port = int(self.address.rpartition(":")[2] or 0)
        try:
            server = ServerProcess.start(msgspec.structs.replace(self._settings, port=port), limit_s=START_LIMIT_S)
        except (RunError, OSError) as error:
            self.address = ""
            _log.warning("%s cannot be started: %s", self._name, error)
            return None
        self.address = server.address
        return server

    def _serve(self, server: ServerProcess) -> None:
        while server.alive and not self._closing.wait(LOOK_S):
            pass
        asked = self._closing.is_set()
        with contextlib.suppress(RunError):
            code = server.end()
            if not asked:
                _log.warning("%s (pid %d) ended with exit code %d; starting another", self._name, server.pid, code)


class Shards:
    """All servers of a run."""

    def __init__(self, settings: ServerSettings, num_servers: int) -> None:
        """Begin to start them; returns at once."""
        self._shards: Sequence[Shard] = [Shard(number, settings) for number in range(num_servers)]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of each server, empty where there is none."""
        return tuple(shard.address for shard in self._shards)

    @property
    def num_restarts(self) -> int:
        """Servers that took another's place."""
        return sum(shard.restarts for shard in self._shards)

    @property
    def num_lost(self) -> int:
        """Servers given up."""
        return sum(shard.lost for shard in self._shards)

    def close(self) -> None:
        """End them."""
        for shard in self._shards:
            shard.ask_to_end()
        for shard in self._shards:
            shard.wait()
