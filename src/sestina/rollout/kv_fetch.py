"""What a thread does to fetch a resumed chunk's keys and values."""

import time
from dataclasses import dataclass, replace
from functools import partial

from sestina.core.errors import DataError
from sestina.core.records import KvSource
from sestina.core.units import Seconds, Version
from sestina.kvpool.entry import Entry, EntryKey, read_entry
from sestina.kvpool.pool import Pool
from sestina.rollout.job import Job
from sestina.rollout.kv_near import Worth
from sestina.rollout.pages import PAGE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came of it."""

    source: KvSource
    version: Version
    """Of the weights that were loaded."""
    seconds: Seconds = 0.0
    """Processor time."""
    waited_s: Seconds = 0.0
    num_bytes: int = 0
    entry: Entry | None = None


def fetch(pool: Pool, key: EntryKey, job: Job, *, num_cached: int, page_bytes: int, worth: Worth) -> Fetched:
    """Take a chunk's entry out of the pool, if it pays, and read it; whatever prevents that is its `source`."""
    began_s, worked_s = time.perf_counter(), time.thread_time()
    found = _find(pool, key, job, num_cached=num_cached, page_bytes=page_bytes, worth=worth)
    return replace(found, seconds=time.thread_time() - worked_s, waited_s=time.perf_counter() - began_s)


def _find(pool: Pool, key: EntryKey, job: Job, *, num_cached: int, page_bytes: int, worth: Worth) -> Fetched:
    nothing = partial(Fetched, version=key.version)
    try:
        found = pool.take(key)
        if found is None:
            return nothing(source="absent")
        if not worth(found, job, lambda: num_cached):
            found.close()
            return nothing(source="dearer")
        raw = found.read()
        entry = read_entry(raw, key, job.known, page_bytes=page_bytes, page_tokens=PAGE_TOKENS)
    except OSError:
        return nothing(source="failed")
    except DataError:
        return nothing(source="corrupt")
    source: KvSource = found.tier if entry.whole else "corrupt"
    return Fetched(source=source, version=key.version, num_bytes=found.num_bytes, entry=entry)
