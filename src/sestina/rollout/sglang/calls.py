"""Chunks under way at a server: those submitted together in one streamed call, asked for again when it is lost."""

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass

from sestina.core.errors import EngineError
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import Seconds, Version
from sestina.rollout.sglang.client import ServerLostError
from sestina.rollout.sglang.keeper import Keeper
from sestina.rollout.sglang.life import Life
from sestina.rollout.sglang.pool import PoolAccount
from sestina.rollout.sglang.reply import Reply, parse_reply, result_of
from sestina.rollout.sglang.wire import generate_body

_log = logging.getLogger(__name__)

TURN_S: Seconds = 0.005
"""How long `turn` waits for a chunk to end, and then for another one that ends with it."""

GATHER_S: Seconds = 0.05
"""How long it gathers at most."""


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """A chunk the server is asked for."""

    chunk: ChunkRequest
    submitted_s: Seconds
    started_s: Seconds | None = None
    """When its first token came."""
    rid: str = ""
    """Empty until it is asked for; another one each time."""
    cached_tokens: int = 0
    """Of its text, found in the cache of the server that has drawn its first token."""
    aborted: bool = False

    def begin(self) -> Seconds:
        """Return when it began: at the first call."""
        if self.started_s is None:
            self.started_s = time.monotonic()
        return self.started_s


class Calls:
    """All calls of one engine; use within one event loop."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        seed: int,
        stop_token: int,
        silence_s: Seconds,
        account: PoolAccount | None = None,
    ) -> None:
        """`account`: where there is a pool, of what chunks take and leave."""
        self._keeper = keeper
        self._account = account
        self._warned = False
        self._seed, self._stop_token = seed, stop_token
        self._silence_s = silence_s
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[ChunkResult] = []

    async def turn(self, new: Iterable[Flight]) -> list[ChunkResult]:
        """Ask for what is new; return what has ended, after a moment.

        What ends together should go on together, in one call. Raises EngineError when the server refuses, or is lost
        too often.
        """
        if flights := list(new):
            self._tasks.add(asyncio.create_task(self._ask(flights)))
        deadline_s = time.monotonic() + GATHER_S
        seen = -1
        while seen < len(self._ended) and time.monotonic() < deadline_s:
            seen = len(self._ended)
            await asyncio.sleep(TURN_S)
        for task in [task for task in self._tasks if task.done()]:
            task.result()  # raises what has ended it
            self._tasks.discard(task)
        ended, self._ended = self._ended, []
        return ended

    async def abort(self, flights: Iterable[Flight]) -> None:
        """End these; each then comes back with what it has."""
        for flight in flights:
            flight.aborted = True
            with suppress(ServerLostError):  # it is not asked for again
                if flight.rid:  # SGLang would take an empty one for every id
                    await self._keeper.life.client.abort(flight.rid, self._silence_s)

    async def close(self) -> None:
        """Give all calls up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, waiting: list[Flight]) -> None:
        """Ask until every answer has come whole."""
        while waiting:
            life = await self._keeper.ready()
            version = self._keeper.version
            asked = self._name(waiting, version)
            try:
                await self._receive(life, asked, version)
            except ServerLostError as error:
                await self._keeper.renew(life, error)
            waiting = list(asked.values())

    def _name(self, flights: list[Flight], version: Version) -> dict[str, Flight]:
        """Give every chunk that is to be asked for a new id; those aborted meanwhile end here."""
        asked: dict[str, Flight] = {}
        for flight in flights:
            if flight.aborted:
                self._end(flight, Reply.nothing(), version)
                continue
            flight.rid = f"{flight.chunk.id}#{next(self._numbers)}"
            flight.cached_tokens = 0
            asked[flight.rid] = flight
        return asked

    async def _receive(self, life: Life, asked: dict[str, Flight], version: Version) -> None:
        """Make one call under weights of `version`, or later ones; mutates `asked`, which keeps what is unanswered."""
        if not asked:
            return
        chunks = {rid: flight.chunk for rid, flight in asked.items()}
        body = generate_body(chunks, seed=self._seed, stop_token=self._stop_token)
        async with aclosing(life.client.generate(body)) as events:
            async for event in events:
                reply = parse_reply(event)
                flight = asked[reply.meta_info.id]
                flight.begin()
                flight.cached_tokens = reply.meta_info.cached_tokens
                if reply.meta_info.finish_reason is not None:
                    self._end(asked.pop(reply.meta_info.id), reply, version)
        if asked:
            raise EngineError(f"SGLang ended its answer without {len(asked)} of {len(chunks)} chunks")

    def _end(self, flight: Flight, reply: Reply, version: Version) -> None:
        result = result_of(
            reply,
            flight.chunk,
            range(version, self._keeper.version + 1),
            submitted_s=flight.submitted_s,
            started_s=flight.begin(),
            finished_s=time.monotonic(),
            account=self._account,
        )
        if result.finish == "abort" and not flight.aborted:
            raise EngineError(f"request {flight.chunk.id}: SGLang ended it unasked: {reply.meta_info.finish_reason}")
        if result.kv.target == "failed" and not self._warned:
            self._warned = True
            _log.warning("KV pool: %s could not be left in the store; chunks that move are computed again", result.id)
        self._ended.append(result)
