"""SGLang behind the Engine Protocol: chunks in flight as asyncio tasks, driven from `step`.

A server can be lost: it crashes, is killed, or stops answering, and then is killed here. Every call under way breaks
off; the first to notice starts a new server and gives it the weights this rank has kept, and every chunk is asked for
again. A chunk counts only when its reply has come whole, and its tokens do not depend on when it ran, so nothing is
lost and nothing comes twice.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult, EngineInfo, EngineLoad
from sestina.core.units import Seconds, Version
from sestina.models.shape import ModelShape
from sestina.models.weights import check_tensors
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.engine import check_chunk
from sestina.rollout.sglang.client import ServerLoad, ServerLostError
from sestina.rollout.sglang.life import Life
from sestina.rollout.sglang.wire import Reply, finish_of, generate_body, parse_reply, tokens_of, version_of

_log = logging.getLogger(__name__)

TURN_S: Seconds = 0.005
"""How long `step` waits for a chunk to end."""

LOOK_S: Seconds = 1.0
"""Pause between two looks at the server."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Flight:
    """A chunk the server is asked for."""

    chunk: ChunkRequest
    number: int
    submitted_s: Seconds
    rid: str = ""
    aborted: bool = False


class SGLangEngine:
    """Implements `Engine`; see there for what each method mutates and raises. Building it starts the server."""

    def __init__(
        self,
        config: SGLangEngineConfig,
        shape: ModelShape,
        *,
        model: Path,
        log: Path,
        max_context_tokens: int,
        seed: int,
        stop_token: int,
    ) -> None:
        self._config = config
        self._shape = shape
        self._model, self._log = model, log
        self._max_context_tokens = max_context_tokens
        self._seed, self._stop_token = seed, stop_token
        self._version: Version | None = None
        self._tensors: Mapping[str, Tensor] = {}
        self._numbers = itertools.count()
        self._flights: dict[RequestId, tuple[_Flight, asyncio.Task[ChunkResult]]] = {}
        self._seen = ServerLoad()
        self._steps = self._decoded = self._prefilled = self._cached = self._preemptions = self._restarts = 0
        self._loop = asyncio.new_event_loop()
        self._renewal = asyncio.Lock()
        try:
            self._life = self._loop.run_until_complete(Life.begin(config, model, log))
        except EngineError:
            self._loop.close()
            raise
        self._looking = self._loop.create_task(self._look())

    @property
    def version(self) -> Version | None:
        """See `Engine.version`."""
        return self._version

    @property
    def idle(self) -> bool:
        """See `Engine.idle`."""
        return not self._flights

    def submit(self, request: ChunkRequest) -> None:
        """See `Engine.submit`."""
        if self._version is None:
            raise EngineError(f"request {request.id}: no verified weights are loaded")
        if request.id in self._flights:
            raise EngineError(f"request {request.id} is already in the engine")
        check_chunk(
            request,
            vocab_size=self._shape.vocab_size,
            max_context_tokens=self._max_context_tokens,
            kv_capacity_tokens=self._life.info.max_total_num_tokens,
        )
        flight = _Flight(chunk=request, number=next(self._numbers), submitted_s=time.monotonic())
        self._flights[request.id] = flight, self._loop.create_task(self._run(flight, self._version))

    def abort(self, ids: list[RequestId]) -> None:
        """See `Engine.abort`."""
        for id in ids:
            if id in self._flights:
                flight, _ = self._flights[id]
                flight.aborted = True
                self._loop.run_until_complete(self._abort(flight))

    def step(self) -> list[ChunkResult]:
        """See `Engine.step`; waits a moment for the server instead of computing."""
        if not self._flights:
            return []
        tasks = [task for _, task in self._flights.values()]
        waiting = asyncio.wait([self._looking, *tasks], timeout=TURN_S, return_when=asyncio.FIRST_COMPLETED)
        self._loop.run_until_complete(waiting)
        if self._looking.done():
            self._looking.result()  # only an error ends it
        ended = [(flight, task) for flight, task in self._flights.values() if task.done()]
        for flight, _ in ended:
            del self._flights[flight.chunk.id]
        return [task.result() for _, task in ended]

    def load_weights(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """See `Engine.load_weights`; keeps the tensors, for a server to come."""
        if self._flights:
            raise EngineError(f"weights of version {version} arrived with {len(self._flights)} chunks in flight")
        self._version = None
        check_tensors(tensors, self._shape, f"weights of version {version}")
        self._tensors = tensors
        self._loop.run_until_complete(self._hand_over(version))
        self._version = version

    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return EngineInfo(
            kv_capacity_tokens=self._life.info.max_total_num_tokens,
            page_tokens=self._life.info.page_size,
            max_running=self._config.max_running,
            batch_invariant=self._config.deterministic,
        )

    def load(self) -> EngineLoad:
        """See `Engine.load`; what the server said of itself is at most some seconds old."""
        return EngineLoad(
            running=self._seen.num_running_reqs,
            waiting=self._seen.num_waiting_reqs,
            kv_used_tokens=self._seen.num_used_tokens,
            kv_capacity_tokens=self._life.info.max_total_num_tokens,
            steps=self._steps,
            decoded_tokens=self._decoded,
            prefilled_tokens=self._prefilled,
            cached_tokens=self._cached,
            preemptions=self._preemptions,
            restarts=self._restarts,
        )

    def close(self) -> None:
        """See `Engine.close`."""
        tasks = [self._looking, *(task for _, task in self._flights.values())]
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._life.end())
        self._loop.close()

    async def _run(self, flight: _Flight, version: Version) -> ChunkResult:
        """Ask until an answer has come whole."""
        chunk = flight.chunk
        while True:
            async with self._renewal:
                life = self._life
            if flight.aborted:  # before it was asked for, or while the server was lost
                return self._result(flight, Reply.nothing(), version)
            flight.rid = f"{chunk.id}#{next(self._numbers)}"
            body = generate_body(chunk, flight.rid, seed=self._seed, stop_token=self._stop_token, version=version)
            try:
                reply = parse_reply(await life.client.generate(body), chunk)
            except ServerLostError as error:
                await self._renew(life, error)
                continue
            return self._result(flight, reply, version)

    def _result(self, flight: _Flight, reply: Reply, version: Version) -> ChunkResult:
        chunk, meta = flight.chunk, reply.meta_info
        tokens, logprobs = tokens_of(reply)
        finish = finish_of(reply, chunk, len(chunk.generated) + len(tokens))
        if finish == "abort" and not flight.aborted:
            raise EngineError(f"request {chunk.id}: SGLang ended it unasked: {meta.finish_reason.message}")
        known = len(chunk.prompt) + len(chunk.generated)
        prefilled = known - meta.cached_tokens if len(tokens) else 0
        finished_s = time.monotonic()
        self._steps += 1
        self._decoded += len(tokens)
        self._prefilled += prefilled
        self._cached += meta.cached_tokens
        self._preemptions += meta.num_retractions
        return ChunkResult(
            id=chunk.id,
            tokens=tokens,
            logprobs=logprobs,
            finish=finish,
            version=version_of(reply, chunk, version),
            submitted_s=flight.submitted_s,
            started_s=max(flight.submitted_s, finished_s - meta.running_s),
            finished_s=finished_s,
            prefilled_tokens=prefilled,
            cached_tokens=meta.cached_tokens,
            preemptions=meta.num_retractions,
        )

    async def _abort(self, flight: _Flight) -> None:
        if not flight.rid:
            return  # SGLang would take no id for every id
        with suppress(ServerLostError):
            await self._life.client.abort(flight.rid, self._config.silence_s)

    async def _hand_over(self, version: Version) -> None:
        """Give the kept weights to the server; to a new one when this is lost meanwhile."""
        life = self._life
        try:
            await life.relay.send(version, self._tensors)
        except ServerLostError as error:
            await self._renew(life, error, version)

    async def _renew(self, lost: Life, why: ServerLostError, version: Version | None = None) -> None:
        """Start another server with the kept weights, unless somebody has done so since `lost`."""
        async with self._renewal:
            if self._life is not lost:
                return
            self._restarts += 1
            if self._restarts > self._config.max_restarts:
                raise EngineError(
                    f"SGLang was lost {self._restarts} times, rollout.engine.max_restarts is "
                    f"{self._config.max_restarts}: {why}; {lost.process.last_words()}"
                )
            _log.warning("SGLang is lost (%s) and is started again: %s", why, self._log)
            await lost.end()
            self._life = await Life.begin(self._config, self._model, self._log)
            known = self._version if version is None else version
            assert known is not None, "chunks are only in flight with weights"
            await self._life.relay.send(known, self._tensors)

    async def _look(self) -> None:
        """See to it that a server which does not answer is given up; runs only while chunks are in flight."""
        while True:
            await asyncio.sleep(LOOK_S)
            life = self._life
            if self._renewal.locked():
                self._steps += 1  # starting a server has a limit of its own
            elif await life.client.alive(self._config.silence_s):
                self._steps += 1
                with suppress(EngineError):  # lost since; the next look finds out
                    self._seen = await life.client.load(self._config.silence_s)
            elif self._flights and life is self._life and life.process.exit_code is None:
                _log.warning("SGLang has not answered for %g s", self._config.silence_s)
                life.process.kill()
