"""SGLang behind the Engine Protocol: chunks in flight in streamed calls, driven from `step`.

Chunks submitted between two steps are asked for in one call. A chunk counts only when its reply has come whole; those
whose call breaks off are asked for again once the keeper has another server. Tokens do not depend on when they are
drawn, so nothing is lost and nothing comes twice. Calls outlive the weights that they began with: new ones are given to
the server in between, and the reply says which tokens are whose.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult, EngineInfo, EngineLoad, KvUse
from sestina.core.units import Version
from sestina.models.shape import ModelShape
from sestina.models.weights import check_tensors
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.engine import Interruption, check_chunk
from sestina.rollout.sglang.calls import Calls, Flight
from sestina.rollout.sglang.counted import ServerTally
from sestina.rollout.sglang.drafting import ServerDrafts
from sestina.rollout.sglang.keeper import Keeper
from sestina.rollout.sglang.pool import PoolAccount, ServerPool
from sestina.rollout.sglang.room import peak_tokens
from sestina.rollout.sglang.server import ServerSetup
from sestina.rollout.sglang.tally import Tally
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk


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
        draft: DraftConfig | None = None,
        desk: DraftDesk | None = None,
        pool: ServerPool | None = None,
        interruption: Interruption = "refuse",
    ) -> None:
        drafts = draft and ServerDrafts(config=draft, max_context_tokens=max_context_tokens, stop_token=stop_token)
        self._config = config
        self._interruption: Interruption = interruption
        self._room_tokens = drafts.room_tokens(config) if drafts else 0
        self._shape = shape
        self._max_context_tokens = max_context_tokens
        self._version: Version | None = None
        self._flights: dict[RequestId, Flight] = {}
        self._new: list[Flight] = []
        self._submitted = 0
        self._tally = Tally()
        self._loop = asyncio.new_event_loop()
        setup = ServerSetup(config=config, drafts=drafts, pool=pool, model=model, log=log)
        try:
            self._keeper = self._loop.run_until_complete(Keeper.begin(setup))
        except EngineError:
            self._loop.close()
            raise
        account = pool and PoolAccount(page_tokens=config.page_tokens, row_bytes=pool.row_bytes)
        self._calls = Calls(self._keeper, seed=seed, stop_token=stop_token, silence_s=config.silence_s, account=account)
        self._looking: asyncio.Task[None] | None = None
        if desk and drafts:
            take = self._keeper.take_counted
            desk.tally = ServerTally(desk.counts, lambda: self._loop.run_until_complete(take()))

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
            kv_capacity_tokens=self._capacity_tokens,
        )
        flight = Flight(chunk=request, submitted_s=time.monotonic())
        self._flights[request.id] = flight
        self._submitted += 1
        self._new.append(flight)

    def abort(self, ids: list[RequestId]) -> None:
        """See `Engine.abort`."""
        flights = [self._flights[id] for id in ids if id in self._flights]
        self._loop.run_until_complete(self._calls.abort(flights))

    def step(self) -> list[ChunkResult]:
        """See `Engine.step`; waits a moment for the server instead of computing."""
        if not self._flights:
            return []
        new, self._new = self._new, []
        if self._looking is None:
            self._looking = self._loop.create_task(self._keeper.look())
        results = self._loop.run_until_complete(self._calls.turn(new))
        if self._looking.done():
            self._looking.result()  # only an error ends it
        ended = {result.id: result for result in results}
        for result in results:
            self._tally.add(result)
        results = [ended[id] for id in list(self._flights) if id in ended and self._flights.pop(id)]
        if not self._flights:
            self._look_away()
        return results

    def load_weights(self, version: Version, tensors: Mapping[str, Tensor]) -> None:
        """See `Engine.load_weights`; keeps the tensors, for a server to come."""
        if self._flights and self._interruption == "refuse":
            raise EngineError(f"weights of version {version} arrived with {len(self._flights)} chunks in flight")
        self._version = None
        check_tensors(tensors, self._shape, f"weights of version {version}")
        self._look_away()  # a server that is paused does not answer
        keep_kv = bool(self._flights) and self._interruption == "keep_kv"
        self._loop.run_until_complete(self._keeper.give(version, tensors, keep_kv=keep_kv))
        self._version = version

    def expect(self, upcoming: Sequence[RequestId], near: Sequence[RequestId]) -> None:
        """See `Engine.expect`; what is dropped from a server's pool is its own choice."""

    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return EngineInfo(
            kv_capacity_tokens=self._capacity_tokens,
            page_tokens=self._keeper.life.info.page_size,
            max_running=self._config.max_running,
            batch_invariant=self._config.deterministic,
        )

    def load(self) -> EngineLoad:
        """See `Engine.load`; what the server said of itself is at most some seconds old."""
        kv = KvUse(
            submitted=self._submitted,
            peak_tokens=peak_tokens(self._flights.values(), self._keeper.life.info.page_size),
            capacity_tokens=self._capacity_tokens,
        )
        return self._tally.load(self._keeper, kv)

    def close(self) -> None:
        """See `Engine.close`."""
        self._look_away()
        self._loop.run_until_complete(self._calls.close())
        self._loop.run_until_complete(self._keeper.end())
        self._loop.close()

    @property
    def _capacity_tokens(self) -> int:
        return self._keeper.life.info.max_total_num_tokens - self._room_tokens

    def _look_away(self) -> None:
        """No step comes for a while, and without steps a look under way would find its time over."""
        if self._looking is not None:
            self._looking.cancel()
            self._loop.run_until_complete(asyncio.gather(self._looking, return_exceptions=True))
            self._looking = None
