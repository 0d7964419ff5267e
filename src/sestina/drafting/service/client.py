"""Drafts inside an engine process, from what its own responses and their siblings elsewhere said."""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import zmq

from sestina.core.ids import GroupId
from sestina.core.units import Seconds, TokenArray
from sestina.drafting.drafts import DraftBuffers, HandleArray
from sestina.drafting.index import SuffixIndex
from sestina.drafting.service.correspondent import Correspondent
from sestina.drafting.service.keys import ClientKeys
from sestina.drafting.service.loop import HEARTBEAT_LIMIT_MS, HEARTBEAT_MS, PEER_FRAMES
from sestina.drafting.service.responses import Responses
from sestina.drafting.service.settings import ClientSettings
from sestina.drafting.service.wire import MAX_FRAME_BYTES
from sestina.drafting.settings import DraftSettings

RECONNECT_MS, RECONNECT_LIMIT_MS = 50, 1000


class DraftClient:
    """An index kept in step with those of other instances, through servers that may be slow, dead or new.

    Everything but `pump` works on the index alone. `pump` never waits; call it once per engine step, and while idle.

    Example:
        client = DraftClient(index)
        client.connect(addresses, read_client_keys(folder))
        client.register_group(group, prompt, ttl_s=600)
        handle = client.start_request(group, sample, said)   # said: what earlier chunks produced
        drafts = client.draft(handles, max_tokens, settings, buffers)
        client.append(handles, offsets, bounds, tokens)
        client.pump(time.monotonic())
        client.stop_request(handle)                          # the chunk has ended here
    """

    def __init__(self, index: SuffixIndex, settings: ClientSettings | None = None) -> None:
        """`index` is this object's from here on; without servers it is one of what is decoded here."""
        self._responses = Responses(index)
        self._settings = settings or ClientSettings()
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._addresses: tuple[str, ...] = ()
        self._links: dict[int, tuple[Correspondent, zmq.Socket[bytes]]] = {}

    def connect(self, addresses: Sequence[str], keys: ClientKeys) -> None:
        """Exchange with these servers, in place of those before; all clients share their order.

        A server whose address is as before stays connected. One whose address is empty is none, and its groups' drafts
        are of what is decoded here.
        """
        before = self._addresses if len(addresses) == len(self._addresses) else ()
        self._addresses = tuple(addresses)
        for number in list(self._links):
            if not before or before[number] != addresses[number]:
                self._disconnect(number)
        for number, address in enumerate(addresses):
            if address and number not in self._links:
                link = Correspondent(self._responses, self._settings)
                self._links[number] = link, _connect(self._context, address, keys)
                self._poller.register(self._links[number][1], zmq.POLLIN)
        for group in self._responses.groups:
            self._include(group)

    def register_group(self, group: GroupId, prompt: TokenArray, ttl_s: Seconds) -> None:
        """Hold a group, here and at its server, until nothing runs in it for `ttl_s`; again is no error.

        Raises OutOfRangeError, IndexFullError.
        """
        self._responses.register_group(group, prompt, ttl_s)
        self._include(group)

    def start_request(self, group: GroupId, request: int, said: TokenArray) -> int:
        """Decode a response here that has said `said` so far; returns its handle.

        Raises NotFoundError when the group is not registered (any more), ExistsError when the response runs here,
        OutOfRangeError, IndexFullError.
        """
        return self._responses.start_request(group, request, said)

    def append(
        self, handles: HandleArray, offsets: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], tokens: TokenArray
    ) -> None:
        """Append to requests that run here, as SuffixIndex.append, which says what it raises."""
        self._responses.append(handles, offsets, bounds, tokens)

    def draft(
        self,
        handles: HandleArray,
        max_tokens: npt.NDArray[np.int32],
        settings: DraftSettings,
        buffers: DraftBuffers | None = None,
    ) -> DraftBuffers:
        """batch_speculate: draft into `buffers`, as SuffixIndex.draft, which says what it raises."""
        return self._responses.index.draft(handles, max_tokens, settings, buffers)

    def stop_request(self, handle: int) -> None:
        """Decode a response here no longer; others' tokens of it are taken over again. Raises NotFoundError."""
        self._responses.stop_request(handle)

    def drop_group(self, group: GroupId) -> None:
        """Forget a group here, its handles included; the server forgets it by itself. Raises NotFoundError."""
        self._responses.drop_group(group)

    def forget(self) -> None:
        """Drop every group, as with weights that say otherwise."""
        self._responses.forget()

    def pump(self, now: Seconds) -> None:
        """Take in what servers replied and ask them what is due; `now` is monotonic. Never waits, never raises."""
        self._responses.expire(now)
        for link, socket in self._links.values():
            for _ in range(PEER_FRAMES):
                try:
                    frame = socket.recv(zmq.NOBLOCK)
                except zmq.Again:
                    break
                link.receive(frame, now)
            if now < link.wake_at():
                continue
            if not socket.poll(0, zmq.POLLOUT):
                self._responses.counts["unreachable"] += 1
                link.postpone(now)
                continue
            asked = link.compose(now)
            if asked is not None:
                self._send(link, socket, asked)

    def wait(self, limit_s: Seconds) -> None:
        """Sleep until a server has replied, at most `limit_s`: for an engine with nothing to decode."""
        self._poller.poll(int(limit_s * 1000))

    def _send(self, link: Correspondent, socket: "zmq.Socket[bytes]", asked: bytes) -> None:
        try:
            socket.send(asked, zmq.NOBLOCK)
        except zmq.Again:
            self._responses.counts["unreachable"] += 1
            link.withdraw()

    @property
    def counts(self) -> dict[str, int]:
        """What has happened since the start, by name."""
        return dict(self._responses.counts)

    @property
    def server_counts(self) -> list[dict[str, int]]:
        """What every server has told of itself in its last reply; empty of one that never replied."""
        return [
            self._links[number][0].server_counts if number in self._links else {}
            for number in range(len(self._addresses))
        ]

    @property
    def num_replies(self) -> int:
        """Replies taken in, of all servers."""
        return sum(link.num_replies for link, _ in self._links.values())

    @property
    def num_unsent_tokens(self) -> int:
        """Tokens said here that servers may lack."""
        return self._responses.num_unsent_tokens

    def close(self) -> None:
        """Disconnect; what is unsent is lost."""
        self._context.destroy(linger=0)

    def _include(self, group: GroupId) -> None:
        if self._addresses and (found := self._links.get(shard_of(group, len(self._addresses)))):
            found[0].include(group)

    def _disconnect(self, number: int) -> None:
        _, socket = self._links.pop(number)
        self._poller.unregister(socket)
        socket.close()


def shard_of(group: GroupId, num_servers: int) -> int:
    """Return the number of the server that holds a group."""
    return zlib.crc32(group.to_bytes(8, "little")) % num_servers


def _connect(context: "zmq.Context[zmq.Socket[bytes]]", address: str, keys: ClientKeys) -> "zmq.Socket[bytes]":
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.immediate = True  # Nothing queues for a server that is not there.
    socket.sndhwm = socket.rcvhwm = PEER_FRAMES
    socket.maxmsgsize = MAX_FRAME_BYTES
    socket.reconnect_ivl, socket.reconnect_ivl_max = RECONNECT_MS, RECONNECT_LIMIT_MS
    socket.heartbeat_ivl, socket.heartbeat_timeout = HEARTBEAT_MS, HEARTBEAT_LIMIT_MS
    socket.curve_secretkey, socket.curve_publickey = keys.secret.encode(), keys.public.encode()
    socket.curve_serverkey = keys.server_public.encode()
    socket.connect(address)
    return socket
