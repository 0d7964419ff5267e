"""Chunks end when their keys and values are in the store; a store that does not answer is given up.

SGLang writes through in the background, and answers before: the instance that goes on with the request would look for
pages that are still on their way. So the end of a chunk that is to go on is sent when what it has left has been
written, or could not be.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sestina.rollout.sglang.drafting import Whose
from sestina.rollout.sglang.pool import LEFT
from sestina.rollout.sglang.reply import KV_LEFT

HOLD_S = 30.0
"""For what a chunk has left to be written; it then goes without, and the store is given up."""

DRAIN_LOOKS, DRAIN_PAUSE_S = 2000, 0.01
"""How often and how far apart a flush looks whether all has been written. Counted: all of a server's processes look
equally often, since each look is a collective of theirs."""

_NO_ROOM = (-200, -600)

_log = logging.getLogger(__name__)


class Store:
    """What this process knows of its store; written to by SGLang's threads, read by its scheduler."""

    def __init__(self) -> None:
        self.lost = False
        self.full: set[int] = set()
        """Operations of which a part had no room."""
        self.failed: set[int] = set()
        self._refused: int | None = None
        """Code of the last page that the thread that writes could not write."""

    def look(self, original, store, keys):
        """Ask which pages are there; SGLang does so before it reads, and before it writes."""
        if self.lost:
            return [0] * len(keys)
        codes = original(store, keys)
        if min(codes, default=0) < 0:
            self.give_up(f"does not answer ({min(codes)})")
        return codes

    def put(self, original, store, keys, *args, **kwargs):
        """Write pages that are not there."""
        codes = [-1] * len(keys) if self.lost else original(store, keys, *args, **kwargs)
        self._refused = min(codes, default=0) if min(codes, default=0) < 0 else self._refused
        return codes

    def write(self, original, controller, operation):
        """Write what a chunk has left; on one thread, one after the other."""
        if self.lost:
            return
        self._refused = None
        original(controller, operation)
        if operation.completed_tokens < len(operation.hash_value) * controller.page_size:
            (self.full if self._refused in _NO_ROOM else self.failed).add(operation.id)

    def give_up(self, why: str) -> None:
        """Call it no more; every call would take seconds."""
        _log.warning("KV pool: Mooncake %s; requests that move are computed again", why)
        self.lost = True

    def forget(self) -> None:
        """Nobody waits for what has been written so far."""
        self.full.clear()
        self.failed.clear()


@dataclass(slots=True, kw_only=True)
class Held:
    """A chunk that has ended, and what must be written before that is said."""

    request: Any
    send: Callable[[], None]
    until_s: float
    copies: set[int]
    """Copies to host memory; what they become is written after them."""
    writes: set[int] = field(default_factory=set)

    def written(self, cache) -> bool:
        """Whether nothing is under way that was when it ended, or came of that."""
        if self.copies:
            self.writes |= cache.ongoing_backup.keys()
            self.copies &= cache.ongoing_write_through.keys()
        return not self.copies and not self.writes & cache.ongoing_backup.keys()


class Leaving:
    """Of one scheduler: the chunks that have ended and are not sent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: list[Held] = []

    def send(self, original, streamer, requests, return_logprob, skip_req=None):
        """Send what is not to be held back."""
        cache = streamer.tree_cache
        held = {id(each): each for each in requests if each is not skip_req and _goes_on(each)}
        original(streamer, [each for each in requests if id(each) not in held], return_logprob, skip_req)
        until_s = time.monotonic() + HOLD_S
        for request in held.values():
            self._held.append(
                Held(
                    request=request,
                    send=lambda request=request: original(streamer, [request], return_logprob),
                    until_s=until_s,
                    copies=set(cache.ongoing_write_through),
                    writes=set(cache.ongoing_backup),
                )
            )
        self._let_go(cache)

    def look(self, _, cache):
        """Send what has been written since."""
        self._let_go(cache)

    def _let_go(self, cache) -> None:
        now_s, still = time.monotonic(), []
        for each in self._held:
            written = each.written(cache)
            if not written and now_s > each.until_s and not self._store.lost:
                self._store.give_up(f"has not written for {HOLD_S:g} s")
            if not written and not self._store.lost:
                still.append(each)
                continue
            left = LEFT.index(self._left(each, written))
            each.request.customized_info = (each.request.customized_info or {}) | {KV_LEFT: Said(left)}
            each.send()
        self._held = still
        if not still:
            self._store.forget()

    def _left(self, held: Held, written: bool) -> str:
        if not written or held.writes & self._store.failed:
            return "failed"
        return "full" if held.writes & self._store.full else "dram"


class Said:
    """One number of a request, for every token of which SGLang asks."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, part: slice) -> list[int]:
        """Return it for each token."""
        return [self._number] * (part.stop - part.start)


def drain(store: Store, scheduler) -> None:
    """Have everything written that is under way, or given up: SGLang refuses to flush before."""
    if not _emptied(scheduler.tree_cache):
        store.give_up(f"has not written for {DRAIN_LOOKS * DRAIN_PAUSE_S:g} s")
        _emptied(scheduler.tree_cache)


def _emptied(cache) -> bool:
    for _ in range(DRAIN_LOOKS):
        if not (cache.ongoing_write_through or cache.ongoing_load_back or cache.ongoing_backup):
            return True
        cache.check_hicache_events()
        time.sleep(DRAIN_PAUSE_S)
    return False


def _goes_on(request) -> bool:
    """Whether a chunk has ended with this step, and its response has not."""
    own = request.sampling_params.custom_params
    if not own or not request.finished() or request.finished_output:
        return False
    whose, known = Whose(**own), len(request.origin_input_ids) + len(request.output_ids)
    return request.finished_reason.to_json()["type"] == "length" and known - whose.prompt_tokens < whose.max_new_tokens
