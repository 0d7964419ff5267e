"""Keys and values that lie near: copied between the engine's pages and this machine's memory at once, by the engine."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sestina.core.errors import DataError
from sestina.core.records import KvSource
from sestina.core.units import TokenArray
from sestina.kvpool.entry import EntryKey
from sestina.kvpool.pool import Found, Near, Pool, Stored
from sestina.rollout.job import Job
from sestina.rollout.pages import PAGE_TOKENS
from sestina.rollout.qwen2 import Qwen2

Worth: TypeAlias = Callable[[Found, Job, Callable[[], int]], bool]
"""Whether to move what was found for a chunk, so many tokens of which are in pages already."""


class NearMoves:
    """What an engine moves by itself."""

    def __init__(self, pool: Pool, model: Qwen2, worth: Worth) -> None:
        self._pool = pool
        self._model = model
        self._worth = worth

    def take(self, key: EntryKey, job: Job, num_cached: Callable[[], int]) -> KvSource | None:
        """Return what became of a resumed chunk's entry, which is then the job's; None when a thread is to look."""
        if self._model.cells is None:
            return None
        try:
            found = self._pool.take_near(key)
        except OSError:
            return "failed"
        if found is None:
            return None
        if not self._worth(found, job, num_cached):
            found.close()
            return "dearer"
        job.pooled = found
        return found.tier

    def put(self, near: Near, job: Job, num_matched: int) -> tuple[int, KvSource]:
        """Fill a chunk's pages after the first `num_matched`; returns the tokens that they then hold, and whence."""
        cells = self._model.cells
        assert cells is not None, "what lies near is taken to the CPU's pages alone"
        try:
            computed, whole = near.put(job.known, cells, job.pages, skip=num_matched, page_tokens=PAGE_TOKENS)
        except DataError:
            return 0, "corrupt"
        return computed, near.tier if whole else "corrupt"

    def store(self, key: EntryKey, computed: TokenArray, pages: Sequence[int]) -> Stored | None:
        """Keep a chunk's KV; None when a thread is to."""
        cells = self._model.cells
        return None if cells is None else self._pool.store_near(key, computed, cells, pages)
