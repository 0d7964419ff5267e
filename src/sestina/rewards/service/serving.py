"""The reward server: one pool of reward workers, asked over HTTP by any number of runs that know the token.

POST /v1/score   wire.Sample -> wire.Reply; 401 wrong token, 413 too large, 503 full or ending
GET  /health     200 while it takes samples, 503 once it is ending; needs no token
"""

import asyncio
import hmac
import signal
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from sestina.core.errors import RunError
from sestina.core.seconds import Seconds
from sestina.rewards.outcome import RewardError
from sestina.rewards.pool import RewardPool
from sestina.rewards.service.wire import CONTENT_TYPE, PATH, read_sample, reply_to

BODY_LIMIT_S: Seconds = 30.0
"""For a request to arrive whole."""
RETRY_AFTER_S = 1
"""What a full server asks its clients to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server serves."""

    host: str
    port: int
    """0: any that is free."""
    max_waiting: int
    """Samples taken and not yet answered; those after them are sent away for now."""
    max_body_bytes: int
    stop_s: Seconds
    """For what has been taken to be answered, once the end is asked for."""


class RewardServer:
    """Answers until SIGTERM or SIGINT, then what it has taken."""

    def __init__(self, pool: RewardPool, token: str, settings: ServerSettings) -> None:
        self._pool, self._settings = pool, settings
        self._expected = f"Bearer {token}".encode()
        self._taken = 0
        self._ending = asyncio.Event()
        self._error: RewardError | None = None

    async def serve(self, tell: Callable[[str], None]) -> None:
        """Serve; `tell` gets the address once it can be called. Raises RunError when it cannot be had.

        Raises RewardError when no worker could be started again.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        app = web.Application(client_max_size=self._settings.max_body_bytes)
        app.add_routes([web.post(PATH, self._score), web.get("/health", self._health)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=self._settings.stop_s)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._settings.host, self._settings.port)
            try:
                await site.start()
            except OSError as error:
                raise RunError(f"{self._settings.host}:{self._settings.port} cannot be served: {error}") from None
            tell("http://{}:{}".format(*runner.addresses[0][:2]))
            await self._ending.wait()
        finally:
            await runner.cleanup()
        if self._error:
            raise self._error

    async def _health(self, request: web.Request) -> web.Response:
        del request
        ending = self._ending.is_set()
        return web.json_response({"status": "ending" if ending else "ok"}, status=503 if ending else 200)

    async def _score(self, request: web.Request) -> web.Response:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, self._expected):
            raise web.HTTPUnauthorized(text="the token is not this server's")
        if self._ending.is_set() or self._taken >= self._settings.max_waiting:
            raise web.HTTPServiceUnavailable(text="full, or ending", headers={"Retry-After": str(RETRY_AFTER_S)})
        self._taken += 1
        try:
            return await self._answer(request)
        finally:
            self._taken -= 1

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_LIMIT_S):
                sample = read_sample(await request.read())
        except (msgspec.MsgspecError, RecursionError) as error:
            raise web.HTTPBadRequest(text=f"no sample: {error}") from None
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the request took more than {BODY_LIMIT_S:g} s to arrive") from None
        try:
            outcome = await self._pool.score(sample)
        except RewardError as error:
            self._error = error
            self._ending.set()
            raise web.HTTPInternalServerError(text="no worker is left") from None
        return web.Response(body=reply_to(outcome), content_type=CONTENT_TYPE)
