"""Messages between ranks over MPI, without a rank ever spinning while it waits.

MPICH's blocking calls busy-wait, so everything here is non-blocking calls and short sleeps that grow while nothing
comes. Who sends to a rank of the same machine rings its bell besides, which ends its sleep.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator

from mpi4py import MPI

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.transport.bells import Bells
from sestina.transport.codec import decode, encode
from sestina.transport.messages import Message

MIN_SLEEP_S: Seconds = 0.0002
"""First pause: an answer that is on its way costs no more than this."""

MAX_SLEEP_S: Seconds = 0.01
"""Longest pause of a rank that others wait for."""

IDLE_SLEEP_S: Seconds = 0.06
"""Longest pause of a rank with nothing to do; what comes from other machines waits this long at most."""

QUIET_SLEEP_S: Seconds = 0.03
"""Longest pause of the controller while its ranks work: what comes from other machines waits this long at most."""

_TAG = 1


class Pause:
    """Sleeps that double from MIN_SLEEP_S to `longest_s` until `reset`."""

    def __init__(self, longest_s: Seconds = MAX_SLEEP_S) -> None:
        self._longest_s = longest_s
        self._next_s = MIN_SLEEP_S

    def next_s(self) -> Seconds:
        """Return how long to sleep now."""
        pause, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause

    def reset(self) -> None:
        """Something happened: begin with short pauses again."""
        self._next_s = MIN_SLEEP_S


def poll_until(ready: Callable[[], bool], limit_s: Seconds, awaited: str) -> None:
    """Return when `ready()` is true; raises DeadlineError naming `awaited` after `limit_s`."""
    deadline, pause = time.monotonic() + limit_s, Pause()
    while not ready():
        if time.monotonic() > deadline:
            raise DeadlineError(awaited, limit_s)
        time.sleep(pause.next_s())


class Mailbox:
    """Typed messages to and from other ranks of one communicator. One owner, one thread."""

    def __init__(self, comm: MPI.Comm, bells: Bells) -> None:
        self._comm = comm
        self._bells = bells
        self._outgoing: dict[int, list[Message]] = {}
        self._sends: list[tuple[MPI.Request, bytes, int]] = []
        self._receives: deque[tuple[MPI.Request, bytearray, int]] = deque()

    def send(self, rank: int, message: Message) -> None:
        """Queue a message; those queued for one rank before the next `poll` travel together."""
        self._outgoing.setdefault(rank, []).append(message)

    def poll(self) -> list[tuple[int, Message]]:
        """Post what is queued, and return what has arrived as (sender, message), oldest first; never waits."""
        self._post()
        return [(source, message) for source, frame in self._arrived() for message in decode(frame)]

    def flush(self) -> None:
        """Post what is queued; takes nothing."""
        self._post()

    def drain(self, limit_s: Seconds) -> None:
        """Return when everything queued has left; raises DeadlineError naming the ranks that do not take it."""
        self._post()

        def sent() -> bool:
            self._collect_sends()
            return not self._sends

        try:
            poll_until(sent, limit_s, "messages to leave")
        except DeadlineError:
            ranks = sorted({rank for _, _, rank in self._sends})
            raise DeadlineError(f"ranks {ranks} to take their messages", limit_s) from None

    def _post(self) -> None:
        self._collect_sends()
        for rank, messages in self._outgoing.items():
            frame = encode(messages)
            request = self._comm.Isend((frame, MPI.BYTE), dest=rank, tag=_TAG)
            self._sends.append((request, frame, rank))
            self._bells.ring(rank)
        self._outgoing.clear()

    def _collect_sends(self) -> None:
        """Forget completed sends; their buffers must live until then."""
        self._sends = [send for send in self._sends if not send[0].Test()]

    def _arrived(self) -> Iterator[tuple[int, bytes]]:
        status = MPI.Status()
        while (message := self._comm.Improbe(tag=_TAG, status=status)) is not None:
            frame = bytearray(status.Get_count(MPI.BYTE))
            # Not Recv: a sender that stops in the middle of a large frame would stop this rank too.
            self._receives.append((message.Irecv((frame, MPI.BYTE)), frame, status.Get_source()))
        while self._receives and self._receives[0][0].Test():
            _, frame, source = self._receives.popleft()
            yield source, bytes(frame)


def broadcast(comm: MPI.Comm, frame: bytes | None, limit_s: Seconds, awaited: str) -> bytes:
    """Give every rank of `comm` the bytes that rank 0 passes (the others pass None), without spinning.

    Raises DeadlineError naming `awaited` when rank 0 does not come within `limit_s`.
    """
    size = bytearray((len(frame) if frame is not None else 0).to_bytes(8, "little"))
    request = comm.Ibcast((size, MPI.BYTE), root=0)
    poll_until(request.Test, limit_s, awaited)
    payload = bytearray(frame if frame is not None else int.from_bytes(size, "little"))
    request = comm.Ibcast((payload, MPI.BYTE), root=0)
    poll_until(request.Test, limit_s, awaited)
    return bytes(payload)
