"""Keys and values between the engine's pages and the pool: what is short at once, the rest by a thread.

What lies near (`kv_near`) is copied in one go, when its chunk is admitted or ends. For all else a thread reads and
writes, and the engine never waits for it: a resumed chunk is fetched first and joins the queue when its KV is there, or
is not to be had; a chunk that ends at its budget, or with a turn, is copied out of its pages, and its result is held
back until the pool has it, so that no other instance is asked to resume it before. PyTorch and files release the GIL,
so a forward pass goes on meanwhile.

What a move costs is the engine's time and the thread's processor time; from the SSD it is the time until the KV is
there, since nothing runs in the request's place meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from sestina.core.errors import DeadlineError
from sestina.core.ids import RequestId
from sestina.core.records import Finish, KvTraffic
from sestina.core.units import Seconds, Version
from sestina.kvpool.entry import ByteArray, Entry, EntryKey
from sestina.kvpool.pool import Found, Pool, Stored
from sestina.policies.kv_pool.cost import MoveCost
from sestina.rollout.engine import Clock
from sestina.rollout.job import Job
from sestina.rollout.kv_fetch import Fetched, fetch
from sestina.rollout.kv_near import NearMoves
from sestina.rollout.pages import PAGE_TOKENS, pages_for
from sestina.rollout.qwen2 import Qwen2

_GOES_ON: tuple[Finish, ...] = ("chunk", "turn")
"""Of chunks whose requests come back."""

LOOK_S: Seconds = 0.002
"""How long an engine with nothing else to do waits for the thread before it looks at its messages again."""

FORGET_LIMIT_S: Seconds = 60.0
"""For the thread to do what it was given, and to forget what other weights have computed."""


class KvMoves:
    """Owns the engine's hold on the pool."""

    def __init__(self, pool: Pool, model: Qwen2, *, clock: Clock, thread: Executor | None = None) -> None:
        """`thread` does the reading and writing, one thing at a time; None: one of its own."""
        self._pool = pool
        self._model = model
        self._clock = clock
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="kv-pool")
        self._fetching: dict[Job, Future[Fetched]] = {}
        self._storing: dict[Job, tuple[Finish, Future[tuple[Stored, Seconds]]]] = {}
        self._kept: list[tuple[Job, Finish]] = []
        """Chunks that the pool has, and whose results have not left."""
        self._near = NearMoves(pool, model, self._worth_moving)
        self._promoting: Future[None] | None = None
        self._cost: MoveCost | None = None
        self._version: Version = -1

    @property
    def busy(self) -> bool:
        """Whether chunks wait for it, on their way in or out."""
        return bool(self._fetching or self._storing or self._kept)

    def begin(self, version: Version, row_s: Seconds, waiting: Iterable[Job]) -> None:
        """Weights are loaded: from here on only their KV counts; `row_s` as in `MoveCost`. Raises DeadlineError.

        Mutates the `waiting` chunks, and those that it fetches for: they compute again what older weights have left.
        """
        self._version = version
        for job in waiting:
            _leave(job)
        for job in self._fetching:
            job.turn(len(job.known), version, kept_kv=False)
        self._cost = self._cost or MoveCost(row_s)
        forgotten = self._thread.submit(self._forget, version)
        try:
            forgotten.result(timeout=FORGET_LIMIT_S)
        except TimeoutError:
            raise DeadlineError(f"the KV pool to forget what is older than version {version}", FORGET_LIMIT_S) from None

    def fetch(self, job: Job, num_cached: Callable[[], int]) -> bool:
        """Take a resumed chunk's KV, `num_cached` tokens of which are in pages; True when the chunk waits for that."""
        if not len(job.request.generated):
            return False
        began_s = self._clock()
        source = self._near.take(self._key(job), job, num_cached)
        if source is None:
            self._fetching[job] = self._thread.submit(self._fetch, job, num_cached())
            return True
        job.kv_cost_s = self._clock() - began_s
        if job.pooled is None:
            job.kv = KvTraffic(source=source, seconds=job.kv_cost_s)
        return False

    def fetched(self) -> list[Job]:
        """Return the chunks that can run."""
        done = [(job, future.result()) for job, future in self._fetching.items() if future.done()]
        for job, found in done:
            del self._fetching[job]
            job.pooled = found.entry
            job.kv = replace(job.kv, source=found.source, moved_bytes=found.num_bytes, seconds=found.seconds)
            job.kv_cost_s = found.waited_s if found.source == "ssd" else found.seconds
            if found.version != self._version:
                _leave(job)
        return [job for job, _ in done]

    def withdraw(self, job: Job) -> bool:
        """Give up what was taken for a chunk; returns whether it is being fetched."""
        _leave(job)
        future = self._fetching.pop(job, None)
        if future is not None:
            future.cancel()
        return future is not None

    def restore(self, job: Job, num_matched: int) -> int:
        """Fill the pages of an admitted chunk after the first `num_matched`; returns the tokens then computed."""
        began_s, pooled, source = self._clock(), job.pooled, job.kv.source
        assert pooled is not None, f"request {job.request.id}: nothing was fetched"
        job.pooled = None
        matched = num_matched * PAGE_TOKENS
        if isinstance(pooled, Entry):
            computed, spent_s, num_bytes = self._put_entry(pooled, job, num_matched), job.kv.seconds, job.kv.moved_bytes
        else:
            spent_s, num_bytes = job.kv_cost_s, pooled.num_bytes
            computed, source = self._near.put(pooled, job, num_matched)
        loaded, took_s = max(0, computed - matched), self._clock() - began_s
        job.kv = KvTraffic(source=source, moved_bytes=num_bytes, loaded_tokens=loaded, seconds=spent_s + took_s)
        if self._cost is not None and loaded and source in ("dram", "ssd"):
            self._cost.learn(source, num_bytes, job.kv_cost_s + took_s)
        return matched + loaded

    def store(self, job: Job, finish: Finish) -> None:
        """Keep a chunk that ended by `finish`, or copy it out of the pages it has just left and begin to."""
        job.ended_s, computed = self._clock(), job.known[:-1]
        pages = job.pages_left[: pages_for(len(computed))]
        key = self._key(job)
        stored = self._near.store(key, computed, pages)
        if stored is not None:
            self._kept.append((job, finish))
            _note(job, stored, self._clock() - job.ended_s)
            return
        content = self._model.read_pages(pages)
        job.kv = replace(job.kv, seconds=job.kv.seconds + self._clock() - job.ended_s)
        self._storing[job] = finish, self._thread.submit(self._store, key, job, content)

    def stored(self) -> list[tuple[Job, Finish]]:
        """Return the chunks whose results can leave."""
        kept, self._kept = self._kept, []
        done: list[tuple[Job, Finish]] = [
            (job, finish) for job, (finish, future) in self._storing.items() if future.done()
        ]
        for job, _ in done:
            stored, seconds = self._storing[job][1].result()
            del self._storing[job]
            _note(job, stored, seconds)
        return kept + done

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

    def _key(self, job: Job) -> EntryKey:
        return EntryKey(version=self._version, request=job.request.id)

    def _fetch(self, job: Job, num_cached: int) -> Fetched:
        return fetch(
            self._pool,
            self._key(job),
            job,
            num_cached=num_cached,
            page_bytes=self._model.page_bytes,
            worth=self._worth_moving,
        )

    def _forget(self, version: Version) -> None:
        self._pool.prepare(self._model.page_bytes)
        self._pool.forget(version)

    def _put_entry(self, entry: Entry, job: Job, num_matched: int) -> int:
        pages = slice(num_matched, len(entry.pages))
        if entry.num_tokens > num_matched * PAGE_TOKENS:
            self._model.write_pages(job.pages[pages], entry.pages[pages])
        return entry.num_tokens

    def _worth_moving(self, found: Found, job: Job, num_cached: Callable[[], int]) -> bool:
        cost = self._cost
        if self._pool.moves_always or cost is None:
            return True
        return cost.moves(found.tier, found.num_bytes, len(job.known) - 1 - num_cached())

    def _store(self, key: EntryKey, job: Job, pages: ByteArray) -> tuple[Stored, Seconds]:
        worked_s = time.thread_time()
        stored = self._pool.store(key, job.known[:-1], pages)
        return stored, time.thread_time() - worked_s

    def _promote(self, names: list[str]) -> None:
        for name, num_bytes in self._pool.on_ssd(names):
            if self._cost is not None and self._cost.promotes(num_bytes):
                self._pool.promote(name)
                return  # others at the next forecast: what a chunk waits for is done before


def keeps(job: Job, finish: Finish) -> bool:
    """Whether a chunk's keys and values are kept: its request comes back, and no older weights have computed any."""
    return finish in _GOES_ON and not job.kept_kv


def _leave(job: Job) -> None:
    """Give up what was taken for a chunk and is not in pages."""
    if job.pooled is not None:
        if not isinstance(job.pooled, Entry):
            job.pooled.close()
        job.pooled, job.kv = None, replace(job.kv, source="absent", moved_bytes=0)


def _note(job: Job, stored: Stored, seconds: Seconds) -> None:
    """Write down what became of a chunk that was to be kept."""
    before = job.kv
    job.kv = KvTraffic(
        source=before.source,
        target=stored.target,
        loaded_tokens=before.loaded_tokens,
        moved_bytes=before.moved_bytes + stored.num_bytes,
        demoted=stored.demoted,
        evicted=stored.evicted,
        seconds=before.seconds + seconds,
    )
