"""SGLang's HTTP interface: every call has a limit, and every status is checked."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal

import aiohttp
import msgspec

from sestina.core.errors import EngineError
from sestina.core.units import Seconds
from sestina.rollout.sglang.counted import Counted

_KEPT_S: Seconds = 2.0
"""An idle connection is used again for this long: SGLang closes it after 5 s, which is not seen while nothing runs."""
_JSON = {"Content-Type": "application/json"}
_DONE = b"data: [DONE]"


class ServerLostError(EngineError):
    """The server broke a connection off, or was late: it is started again."""


class ServerInfo(msgspec.Struct):
    """The part of /server_info that is used."""

    version: str
    max_total_num_tokens: int
    page_size: int


class _State(msgspec.Struct):
    sestina_drafts: Counted


class _States(msgspec.Struct):
    internal_states: list[_State]


class ServerLoad(msgspec.Struct):
    """The part of one entry of /v1/loads that is used."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_used_tokens: int = 0


class _Loads(msgspec.Struct):
    loads: list[ServerLoad]


class SGLangClient:
    """Many calls at once over one pool of connections; use within one event loop, and close it there."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S)
        self._http = aiohttp.ClientSession(connector=connector, headers=_JSON, timeout=aiohttp.ClientTimeout())
        self._under_way: set[asyncio.Timeout] = set()

    async def close(self) -> None:
        """Close all connections; calls under way, which aiohttp would let wait for ever, raise ServerLostError."""
        for limit in self._under_way:
            limit.reschedule(0.0)
        await self._http.close()

    async def __aenter__(self) -> "SGLangClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def generate(self, body: bytes) -> AsyncGenerator[bytes]:
        """Yield the events of /generate; takes as long as the server lives, which the engine watches.

        Raises ServerLostError when the stream breaks off before its end.
        """
        async with self._request("POST", "/generate", None, body) as reply:
            held = b""
            async for piece in reply.content.iter_any():
                *events, held = (held + piece).split(b"\n\n")
                for event in events:
                    if event == _DONE:
                        return
                    yield event.removeprefix(b"data: ")
        raise ServerLostError("SGLang's /generate: the stream broke off")

    async def abort(self, rid: str, limit_s: Seconds) -> None:
        """Ask for a request to end; its `generate` then returns what it has. Unknown ids are ignored."""
        await self.post("/abort_request", {"rid": rid}, limit_s)

    async def alive(self, limit_s: Seconds) -> bool:
        """Whether its scheduler, not only its front, answers within the limit."""
        try:
            await self._call("GET", "/health_generate", limit_s)
        except EngineError:
            return False
        return True

    async def info(self, limit_s: Seconds) -> ServerInfo:
        """Return capacity and version."""
        return self._decode(await self._call("GET", "/server_info", limit_s), ServerInfo, "/server_info")

    async def counted(self, limit_s: Seconds) -> list[Counted]:
        """Return what each of its schedulers has counted of drafts since the start; it must be one that drafts."""
        states = self._decode(await self._call("GET", "/server_info", limit_s), _States, "/server_info")
        return [state.sestina_drafts for state in states.internal_states]

    async def load(self, limit_s: Seconds) -> ServerLoad:
        """Return how busy it is."""
        loads = self._decode(await self._call("GET", "/v1/loads", limit_s), _Loads, "/v1/loads").loads
        return loads[0] if loads else ServerLoad()

    async def post(self, path: str, body: dict[str, Any], limit_s: Seconds) -> bytes:
        """Return the reply of any other call; raises EngineError with what the server says when it refuses."""
        return await self._call("POST", path, limit_s, content=msgspec.json.encode(body))

    @asynccontextmanager
    async def paused(self, mode: Literal["retract", "in_place"], limit_s: Seconds) -> AsyncIterator[None]:
        """Let nothing be computed meanwhile; requests then go on with keys and values computed again, or in place.

        A server that did not take what was given to it meanwhile stays paused: it is started again.
        """
        await self.post("/pause_generation", {"mode": mode}, limit_s)
        yield
        await self.post("/continue_generation", {"torch_empty_cache": False}, limit_s)

    async def _call(self, method: str, path: str, limit_s: Seconds, content: bytes | None = None) -> bytes:
        async with self._request(method, path, limit_s, content) as reply:
            return await reply.read()

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, limit_s: Seconds | None, content: bytes | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._http.closed:
            raise ServerLostError(f"SGLang's {path}: the server has ended")
        try:
            async with self._limited(limit_s), self._http.request(method, self._base + path, data=content) as reply:
                if reply.status != HTTPStatus.OK:
                    said = (await reply.read())[:500].decode(errors="replace")
                    raise EngineError(f"SGLang's {path} answered {reply.status}: {said}")
                yield reply
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServerLostError(f"SGLang's {path}: {type(error).__name__} {error}") from None

    @asynccontextmanager
    async def _limited(self, limit_s: Seconds | None) -> AsyncIterator[None]:
        async with asyncio.timeout(limit_s) as limit:
            self._under_way.add(limit)
            try:
                yield
            finally:
                self._under_way.discard(limit)

    @staticmethod
    def _decode(body: bytes, kind: Any, path: str) -> Any:  # noqa: ANN401 - a msgspec type
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise EngineError(f"SGLang's {path} cannot be read: {error}") from None
