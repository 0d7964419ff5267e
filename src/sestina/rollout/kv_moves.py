"""Keys and values between the engine's pages and the pool: a thread reads and writes, the engine never waits for it.

A resumed chunk is fetched first and joins the queue when its KV is there, or is not to be had. A chunk that ends at its
budget, or with a turn, is copied out of its pages at once; its result is held back until the pool has it, so that no
other instance is asked to resume it before. PyTorch and files release the GIL, so a forward pass goes on meanwhile.

What a move costs is the engine's time and the thread's processor time; from the SSD it is the time until the KV is
there, since nothing runs in the request's place meanwhile.
"""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from sestina.core.errors import DataError, DeadlineError
from sestina.core.ids import RequestId
from sestina.core.records import Finish, KvSource
from sestina.core.units import Seconds, Version
from sestina.kvpool.entry import ByteArray, Entry, EntryKey, read_entry
from sestina.kvpool.pool import Found, Pool, Stored
from sestina.policies.kv_pool.cost import MoveCost
from sestina.rollout.engine import Clock
from sestina.rollout.job import Job
from sestina.rollout.pages import PAGE_TOKENS, pages_for
from sestina.rollout.qwen2 import Qwen2

GOES_ON: tuple[Finish, ...] = ("chunk", "turn")
"""Of chunks whose requests come back: their keys and values are kept."""

LOOK_S: Seconds = 0.002
"""How long an engine with nothing else to do waits for the thread before it looks at its messages again."""

FORGET_LIMIT_S: Seconds = 60.0
"""For the thread to do what it was given, and to forget what other weights have computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    source: KvSource
    seconds: Seconds = 0.0
    """Processor time."""
    waited_s: Seconds = 0.0
    num_bytes: int = 0
    entry: Entry | None = None


class KvMoves:
    """Owns the engine's hold on the pool."""

    def __init__(self, pool: Pool, model: Qwen2, *, clock: Clock, thread: Executor | None = None) -> None:
        """`thread` does the reading and writing, one thing at a time; None: one of its own."""
        self._pool = pool
        self._model = model
        self._clock = clock
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="kv-pool")
        self._fetching: dict[Job, Future[_Fetched]] = {}
        self._storing: dict[Job, tuple[Finish, Future[tuple[Stored, Seconds]]]] = {}
        self._promoting: Future[None] | None = None
        self._cost: MoveCost | None = None
        self._version: Version = -1

    @property
    def busy(self) -> bool:
        """Whether chunks wait for it, on their way in or out."""
        return bool(self._fetching or self._storing)

    def begin(self, version: Version, row_s: Seconds) -> None:
        """Weights are loaded: from here on only their KV counts; `row_s` as in `MoveCost`. Raises DeadlineError."""
        self._version = version
        self._cost = self._cost or MoveCost(row_s)
        forgotten = self._thread.submit(self._pool.forget, version)
        try:
            forgotten.result(timeout=FORGET_LIMIT_S)
        except TimeoutError:
            raise DeadlineError(f"the KV pool to forget what is older than version {version}", FORGET_LIMIT_S) from None

    def fetch(self, job: Job, num_cached: int) -> bool:
        """Begin to fetch a resumed chunk, `num_cached` tokens of which are in pages; False for a first chunk."""
        if not len(job.request.generated):
            return False
        self._fetching[job] = self._thread.submit(self._fetch, job, num_cached)
        return True

    def fetched(self) -> list[Job]:
        """Return the chunks that can run."""
        done = [(job, future.result()) for job, future in self._fetching.items() if future.done()]
        for job, found in done:
            del self._fetching[job]
            job.pooled = found.entry
            job.kv = replace(job.kv, source=found.source, moved_bytes=found.num_bytes, seconds=found.seconds)
            job.kv_cost_s = found.waited_s if found.source == "ssd" else found.seconds
        return [job for job, _ in done]

    def withdraw(self, job: Job) -> bool:
        """Give up a chunk that is being fetched; False when it is not."""
        future = self._fetching.pop(job, None)
        if future is not None:
            future.cancel()
        return future is not None

    def restore(self, job: Job, num_matched: int) -> int:
        """Fill the pages of an admitted chunk after the first `num_matched`; returns the tokens then computed."""
        began_s, pooled = self._clock(), job.pooled
        assert pooled is not None, f"request {job.request.id}: nothing was fetched"
        job.pooled = None
        matched = num_matched * PAGE_TOKENS
        if pooled.num_tokens <= matched:
            return matched
        pages = slice(num_matched, len(pooled.pages))
        self._model.write_pages(job.pages[pages], pooled.pages[pages])
        took_s = self._clock() - began_s
        job.kv = replace(job.kv, loaded_tokens=pooled.num_tokens - matched, seconds=job.kv.seconds + took_s)
        if self._cost is not None and job.kv.source in ("dram", "ssd"):
            self._cost.learn(job.kv.source, job.kv.moved_bytes, job.kv_cost_s + took_s)
        return pooled.num_tokens

    def store(self, job: Job, finish: Finish) -> None:
        """Copy a chunk that ended by `finish` out of the pages it has just left, and begin to keep it."""
        job.ended_s, computed = self._clock(), job.known[:-1]
        pages = self._model.read_pages(job.pages_left[: pages_for(len(computed))])
        job.kv = replace(job.kv, seconds=job.kv.seconds + self._clock() - job.ended_s)
        key = EntryKey(version=self._version, request=job.request.id)
        self._storing[job] = finish, self._thread.submit(self._store, key, job, pages)

    def stored(self) -> list[tuple[Job, Finish]]:
        """Return the chunks whose results can leave."""
        done: list[tuple[Job, Finish]] = [
            (job, finish) for job, (finish, future) in self._storing.items() if future.done()
        ]
        for job, _ in done:
            stored, seconds = self._storing[job][1].result()
            del self._storing[job]
            job.kv = replace(
                job.kv,
                target=stored.target,
                moved_bytes=job.kv.moved_bytes + stored.num_bytes,
                demoted=stored.demoted,
                evicted=stored.evicted,
                seconds=job.kv.seconds + seconds,
            )
        return done

    def wait(self) -> None:
        """Return when a chunk may have come, or after a moment."""
        futures: list[Future[object]] = [*self._fetching.values(), *(each for _, each in self._storing.values())]  # type: ignore[list-item]
        wait(futures, timeout=LOOK_S, return_when=FIRST_COMPLETED)

    def expect(self, upcoming: Sequence[RequestId], near: Sequence[RequestId]) -> None:
        """These requests come next: their entries stay; those that lie `near` are brought to memory if that pays."""
        names = [EntryKey(version=self._version, request=id).name for id in upcoming]
        self._pool.upcoming = frozenset(names)
        if self._promoting is not None and not self._promoting.done():
            return
        if self._promoting is not None:
            self._promoting.result()
        near_names = [EntryKey(version=self._version, request=id).name for id in near]
        self._promoting = self._thread.submit(self._promote, near_names)

    def close(self) -> None:
        """Leave the pool when the thread has done what it was given."""
        self._thread.shutdown(cancel_futures=True)
        self._pool.close()

    def _fetch(self, job: Job, num_cached: int) -> _Fetched:
        began_s, worked_s = time.perf_counter(), time.thread_time()
        found = self._find(job, num_cached)
        return replace(found, seconds=time.thread_time() - worked_s, waited_s=time.perf_counter() - began_s)

    def _find(self, job: Job, num_cached: int) -> _Fetched:
        key = EntryKey(version=self._version, request=job.request.id)
        try:
            found = self._pool.take(key)
            if found is None:
                return _Fetched(source="absent")
            if not self._worth_moving(found, len(job.known) - 1 - num_cached):
                found.close()
                return _Fetched(source="dearer")
            raw = found.read()
            entry = read_entry(raw, key, job.known, page_bytes=self._model.page_bytes, page_tokens=PAGE_TOKENS)
        except OSError:
            return _Fetched(source="failed")
        except DataError:
            return _Fetched(source="corrupt")
        source: KvSource = found.tier if entry.whole else "corrupt"
        return _Fetched(source=source, seconds=0.0, num_bytes=found.num_bytes, entry=entry)

    def _worth_moving(self, found: Found, num_tokens: int) -> bool:
        cost = self._cost
        return self._pool.moves_always or cost is None or cost.moves(found.tier, found.num_bytes, num_tokens)

    def _store(self, key: EntryKey, job: Job, pages: ByteArray) -> tuple[Stored, Seconds]:
        worked_s = time.thread_time()
        stored = self._pool.store(key, job.known[:-1], pages)
        return stored, time.thread_time() - worked_s

    def _promote(self, names: list[str]) -> None:
        for name, num_bytes in self._pool.on_ssd(names):
            if self._cost is not None and self._cost.promotes(num_bytes):
                self._pool.promote(name)
                return  # others at the next forecast: what a chunk waits for is done before
