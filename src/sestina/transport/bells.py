"""Waking a rank of the same machine that sleeps between two looks for messages.

MPI has nothing to sleep on, its blocking calls spin; a datagram socket is something. A ring says no more than that
something was sent: one that is lost costs a pause, never a message. Ranks on other machines look by themselves.
"""

import hashlib
import os
import secrets
import select
import socket
from collections.abc import Sequence
from pathlib import Path

from sestina.core.units import Seconds

_HALF_BYTES = 16
"""Of an address: one half says on which machine it is, the other which bell there."""


class Bells:
    """This rank's bell, and those of the ranks that it can ring. One owner, one thread."""

    def __init__(self) -> None:
        """Hang up the own bell; nobody else's is known yet."""
        self._token = secrets.token_bytes(_HALF_BYTES)
        self._own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._own.bind(_name(self._token))
        self._asleep = select.poll()
        self._asleep.register(self._own, select.POLLIN)
        self._others: dict[int, bytes] = {}

    @property
    def address(self) -> bytes:
        """Where the own bell hangs; as long as every rank's."""
        return _place() + self._token

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Learn every rank's address, in order of ranks; those of other machines are passed over."""
        here = _place()
        self._others = {
            rank: _name(address[_HALF_BYTES:])
            for rank, address in enumerate(addresses)
            if address[:_HALF_BYTES] == here and address != self.address
        }

    def ring(self, rank: int) -> None:
        """Wake a rank, if it is one that can be rung; never waits."""
        name = self._others.get(rank)
        if name is None:
            return
        try:
            self._own.sendto(b"", name)
        except BlockingIOError:
            return  # it has not heard the last ones yet
        except ConnectionRefusedError:
            del self._others[rank]  # its process is gone

    def hush(self) -> bool:
        """Take all that was rung; whether anything was."""
        rung = False
        while True:
            try:
                self._own.recv(1)
            except BlockingIOError:
                return rung
            rung = True

    def wait(self, limit_s: Seconds) -> bool:
        """Sleep until rung, at most `limit_s`; whether it was. What was rung before and not taken counts."""
        self._asleep.poll(1000 * limit_s)
        return self.hush()

    def fileno(self) -> int:
        """Readable while there is something to `hush`, for event loops."""
        return self._own.fileno()

    def close(self) -> None:
        """Take the own bell down: who rings it learns that nobody is here."""
        self._own.close()


def _name(token: bytes) -> bytes:
    """Return a name that is not of the file system and ends with its socket, however its process ends."""
    return b"\0sestina-" + token.hex().encode()


def _place() -> bytes:
    """Return what processes that reach each other have in common: one start of one kernel, one network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    network = os.stat("/proc/self/ns/net").st_ino
    return hashlib.blake2b(boot + str(network).encode(), digest_size=_HALF_BYTES).digest()
