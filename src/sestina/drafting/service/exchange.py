"""One frame and its reply: the server without its sockets, told what was asked and when."""

import numpy as np

from sestina.core.units import Seconds
from sestina.drafting.service.store import DraftStore
from sestina.drafting.service.texts import GroupTexts
from sestina.drafting.service.wire import (
    TOKEN_BYTES,
    Answer,
    Ask,
    CacheState,
    FrameError,
    GroupState,
    Receipt,
    Refusal,
    RegisterGroup,
    Reply,
    RowsDraft,
    decode_ask,
    each_row,
)


def reply_to(frame: bytes, store: DraftStore, now: Seconds) -> Reply:
    """Reply to a frame, mutating the store; what cannot be read changes nothing and is counted."""
    store.sweep(now)
    try:
        ask = decode_ask(frame)
        _check_tokens(ask, store.settings.vocab_size)
    except FrameError as error:
        store.counts["malformed_frames"] += 1
        return Refusal(error=str(error))
    return Exchange(store, now).answer(ask)


class Exchange:
    """Carries out what one frame asks."""

    def __init__(self, store: DraftStore, now: Seconds) -> None:
        self._store = store
        self._now = now
        self._held: dict[int, GroupTexts] = {}
        self._fresh: set[int] = set()
        self._unknown: set[int] = set()
        self._full: set[int] = set()
        self._alien: list[int] = []
        self._fetched: list[tuple[int, GroupTexts, int, int]] = []

    def answer(self, ask: Ask) -> Answer:
        """Register, fetch, update."""
        for asked in ask.registered:
            self._register_group(asked)
        draft, num_fetched = RowsDraft(), 0
        for cache in ask.fetched:
            if draft.full:
                break
            self._fetch_cst(cache, draft)
            num_fetched += 1
        # A client that is level gets a cursor behind what it brings itself.
        level = {group: held for group, held, _, end in self._fetched if end == held.end}
        receipts = [self._update_cst(*row) for row in each_row(ask.updates)]
        states = [
            GroupState(group, held.epoch, start, held.end if group in level else end)
            for group, held, start, end in self._fetched
            if start != held.end or group in self._fresh
        ]
        return Answer(
            number=ask.number,
            num_fetched=num_fetched,
            states=states,
            rows=draft.rows(),
            receipts=[receipt for receipt in receipts if receipt],
            unknown=sorted(self._unknown - self._full),
            full=sorted(self._full),
            alien=self._alien,
            counters={**self._store.counts, "groups": self._store.num_groups, "bytes": self._store.num_bytes},
        )

    def _register_group(self, asked: RegisterGroup) -> None:
        held = self._store.find(asked.group, self._now)
        if held is None:
            if self._store.open(asked.group, asked.ttl_s, asked.prompt, self._now) is None:
                self._full.add(asked.group)
        elif held.prompt != asked.prompt:
            self._store.counts["alien_prompts"] += 1
            self._alien.append(asked.group)
        else:
            held.ttl_s = max(held.ttl_s, asked.ttl_s)

    def _fetch_cst(self, cache: CacheState, draft: RowsDraft) -> None:
        if cache.group in self._alien:
            return
        held = self._store.find(cache.group, self._now)
        if held is None:
            self._unknown.add(cache.group)
            return
        self._held[cache.group] = held
        if cache.epoch != held.epoch:
            self._fresh.add(cache.group)
        start = cache.cursor if cache.epoch == held.epoch and cache.cursor <= held.end else 0
        self._fetched.append((cache.group, held, start, held.copy_since(start, cache.group, draft)))

    def _update_cst(self, group: int, request: int, prev_token_count: int, tokens: memoryview) -> Receipt | None:
        held, counts = self._held.get(group) or self._store.find(group, self._now), self._store.counts
        if group in self._alien:
            return None
        if held is None:
            self._unknown.add(group)
            return None
        count, conflict = held.count(request), False
        end = prev_token_count + len(tokens) // TOKEN_BYTES
        if prev_token_count > count:
            counts["gaps"] += 1
        elif prev_token_count < count and held.differs(request, prev_token_count, tokens):
            counts["conflicts"] += 1
            conflict = True
        elif end <= count:
            counts["duplicates"] += 1
        elif not self._store.extend(held, request, prev_token_count, tokens, self._now):
            self._full.add(group)
        else:
            count = end
        return Receipt(group, request, held.epoch, count, conflict)


def _check_tokens(ask: Ask, vocab_size: int) -> None:
    for raw in (ask.updates.tokens, *(asked.prompt for asked in ask.registered)):
        tokens = np.frombuffer(raw, "<u4")
        if len(tokens) and tokens.max() >= vocab_size:
            raise FrameError(f"token {tokens.astype('<i4')[tokens.argmax()]}: must be 0 to {vocab_size - 1}")
