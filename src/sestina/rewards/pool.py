"""Many reward workers behind one queue."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self, get_args

from sestina.core.units import Seconds
from sestina.rewards.config import JudgeConfig, RemoteConfig, RewardConfig
from sestina.rewards.environments.config import AnsweringConfig
from sestina.rewards.messages import END, Sample
from sestina.rewards.outcome import Kind, Outcome, RewardError
from sestina.rewards.scorer import Scorer
from sestina.rewards.service.judge import Judge
from sestina.rewards.service.remote import Remote
from sestina.rewards.service.scorer import ServiceScorer

START_LIMIT_S = 60.0


def _scorers(config: RewardConfig | AnsweringConfig, start_limit_s: Seconds) -> Sequence[Scorer | ServiceScorer]:
    match config:
        case JudgeConfig() | RemoteConfig():
            service = Judge(config) if isinstance(config, JudgeConfig) else Remote(config)
            return [ServiceScorer(service, timeout_s=config.timeout_s) for _ in range(config.num_workers)]
        case _:
            return [Scorer(config, start_limit_s=start_limit_s) for _ in range(config.num_workers)]


class RewardPool:
    """Scores samples in worker processes or by calls of a service, first come, first served; so are environments asked.

    Example:
        async with RewardPool(config) as pool:
            outcome = await pool.score(Sample(prompt="1+1=", response="#2", label="2", meta={}))
    """

    def __init__(self, config: RewardConfig | AnsweringConfig, *, start_limit_s: Seconds = START_LIMIT_S) -> None:
        self._scorers = _scorers(config, start_limit_s)
        self._queue: asyncio.Queue[tuple[Sample, asyncio.Future[Outcome]]] = asyncio.Queue()
        self._pending: set[asyncio.Future[Outcome]] = set()
        self._serving: list[asyncio.Task[None]] = []
        self._counts: Counter[Kind] = Counter()
        self._refusal: BaseException | None = RewardError("the reward pool is not open")

    async def __aenter__(self) -> Self:
        """Start every worker.

        Raises DeadlineError when one is not ready in time, RewardError when one cannot load its rule or keeps dying.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.close)
            await self._start()
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _start(self) -> None:
        try:
            async with asyncio.TaskGroup() as starts:
                for scorer in self._scorers:
                    starts.create_task(scorer.start())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self._refusal = None
        for scorer in self._scorers:
            serving = asyncio.create_task(self._serve(scorer))
            serving.add_done_callback(self._note_end)
            self._serving.append(serving)

    async def _serve(self, scorer: Scorer | ServiceScorer) -> None:
        while True:
            sample, future = await self._queue.get()
            if future.done():
                continue  # Its caller has given up.
            outcome = await scorer.score(sample)
            self._counts[outcome.kind] += 1
            if not future.done():
                future.set_result(outcome)
            if not scorer.alive:
                await scorer.start()

    def _note_end(self, serving: asyncio.Task[None]) -> None:
        if not serving.cancelled() and (error := serving.exception()):
            self._refuse(error)

    def _refuse(self, error: BaseException) -> None:
        self._refusal = self._refusal or error
        for future in self._pending:
            if not future.done():
                future.set_exception(error)

    async def score(self, sample: Sample) -> Outcome:
        """Score one sample; call it as often as wanted at once.

        Raises RewardError when the pool is closed, or what ended it when a worker could not be started again.
        """
        if self._refusal:
            raise self._refusal
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        self._queue.put_nowait((sample, future))
        return await future

    def counts(self) -> dict[Kind, int]:
        """Return how many samples came to each kind of outcome."""
        return {kind: self._counts[kind] for kind in get_args(Kind)}

    async def close(self) -> None:
        """End every worker, working or not; waiting calls of `score` raise RewardError."""
        self._refuse(RewardError("the reward pool is closed"))
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.gather(*(scorer.end(END) for scorer in self._scorers))
