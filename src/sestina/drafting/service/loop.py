"""A server's sockets: frames in, replies out, one thread, nothing that waits but the poll."""

import time
from typing import BinaryIO

import zmq

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.gate import Gate
from sestina.drafting.service.keys import ServerKeys
from sestina.drafting.service.settings import ServerSettings
from sestina.drafting.service.store import SWEEP_S, DraftStore
from sestina.drafting.service.wire import MAX_FRAME_BYTES, encode

PEER_FRAMES = 4
"""Frames that wait on either side of one peer; a client has one under way."""
BURST = 64
"""Frames answered between two looks at everything else."""
BIND_LIMIT_S = 10.0
HEARTBEAT_MS, HEARTBEAT_LIMIT_MS, HANDSHAKE_LIMIT_MS = 2000, 10000, 10000
_PARTS = 2


class ServerLoop:
    """Serves one store until `until` ends."""

    def __init__(self, settings: ServerSettings, keys: ServerKeys, *, first_epoch: int) -> None:
        """Bind; raises DeadlineError when the port stays taken."""
        self._context = zmq.Context()
        self._store = DraftStore(settings.store, first_epoch=first_epoch)
        self._gate = Gate(self._context, keys)
        self._router = self._context.socket(zmq.ROUTER)
        _limit(self._router)
        self._monitor = self._gate.guard(self._router, keys)
        self.address = _bind(self._router, settings)

    def serve(self, until: BinaryIO) -> None:
        """Reply to every frame until `until`, such as stdin, is at its end."""
        poller = zmq.Poller()
        for source in (self._router, self._gate.asked, self._monitor, until.fileno()):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(SWEEP_S * 1000)))
            if until.fileno() in ready and not until.read(1):
                return
            if self._gate.asked in ready:
                self._gate.decide()
            if self._monitor in ready:
                self._gate.count(self._monitor)
            if self._router in ready:
                self._answer_burst()
            self._store.sweep(time.monotonic())

    def close(self) -> None:
        """Let the address go."""
        self._router.disable_monitor()
        self._context.destroy(linger=0)

    def _answer_burst(self) -> None:
        for _ in range(BURST):
            try:
                parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._answer(parts)

    def _answer(self, parts: list[bytes]) -> None:
        counts = self._store.counts
        counts["refused_peers"] = self._gate.num_refused
        frame = parts[1] if len(parts) == _PARTS else b""
        reply = encode(reply_to(frame, self._store, time.monotonic()))
        try:
            self._router.send_multipart([parts[0], reply], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # The peer has left, or leaves its replies lying; it asks again if it wants them.
            if error.errno not in {zmq.EAGAIN, zmq.EHOSTUNREACH}:
                raise
            counts["undelivered_replies"] += 1


def _limit(router: "zmq.Socket[bytes]") -> None:
    router.linger = 0
    router.router_mandatory = True
    router.sndhwm = router.rcvhwm = PEER_FRAMES
    router.maxmsgsize = MAX_FRAME_BYTES
    router.heartbeat_ivl, router.heartbeat_timeout = HEARTBEAT_MS, HEARTBEAT_LIMIT_MS
    router.handshake_ivl = HANDSHAKE_LIMIT_MS


def _bind(router: "zmq.Socket[bytes]", settings: ServerSettings) -> str:
    address = f"tcp://{settings.host}:{settings.port or '*'}"
    deadline: Seconds = time.monotonic() + BIND_LIMIT_S
    while True:
        try:
            router.bind(address)
            return router.get_string(zmq.LAST_ENDPOINT)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or time.monotonic() >= deadline:
                raise DeadlineError(f"draft server to bind {address}: {error}", BIND_LIMIT_S) from None
        time.sleep(0.05)
