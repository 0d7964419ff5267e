"""Which rank died first. mpiexec ends all others within milliseconds and does not say, so the kernel is asked."""

import os
import select
from collections.abc import Iterable
from threading import Event, Thread

from sestina.core.units import Seconds
from sestina.telemetry.status import RankProcess

LOOK_S: Seconds = 0.2
"""How soon ranks that were just added are waited for; a death itself is noticed at once."""


class DeathWatch:
    """Waits, in a thread of its own, for the first end of any of the processes it is told of."""

    def __init__(self) -> None:
        self._watched: dict[int, RankProcess] = {}
        self._poll = select.poll()
        self._stop = Event()
        self.first: tuple[RankProcess, ...] = ()
        """Those found dead at the first look at which any was; usually one."""
        self._thread = Thread(target=self._wait, daemon=True)
        self._thread.start()

    def add(self, ranks: Iterable[RankProcess]) -> None:
        """Watch these too; ranks that are watched already, or gone already, are left out."""
        known = {rank.pid for rank in self._watched.values()}
        for rank in ranks:
            if rank.pid in known:
                continue
            try:
                handle = os.pidfd_open(rank.pid)
            except OSError:
                continue
            self._watched[handle] = rank
            self._poll.register(handle, select.POLLIN)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()
        for handle in self._watched:
            os.close(handle)

    def _wait(self) -> None:
        while not self._stop.is_set():
            dead = self._poll.poll(LOOK_S * 1000) if self._watched else []
            if dead:
                self.first = tuple(self._watched[handle] for handle, _ in dead)
                return
            if not self._watched:
                self._stop.wait(LOOK_S)
