"""One frame and its reply: the server without its sockets, told what was asked and when."""

import numpy as np

from sestina.core.units import Seconds
from sestina.drafting.service.store import DraftStore
from sestina.drafting.service.wire import (
    CACHE_STATE,
    GROUP,
    LENGTH,
    ROW,
    Answer,
    Ask,
    FrameError,
    Refusal,
    Reply,
    Rows,
    columns,
    decode_ask,
    raw_columns,
)


def _check_tokens(ask: Ask, vocab_size: int) -> None:
    for raw in (ask.updates.tokens, *(asked.prompt for asked in ask.registered)):
        tokens = np.frombuffer(raw, "<u4")
        if len(tokens) and tokens.max() >= vocab_size:
            raise FrameError(f"token {tokens.astype('<i4')[tokens.argmax()]}: must be 0 to {vocab_size - 1}")


def reply_to(frame: bytes, store: DraftStore, now: Seconds) -> Reply:
    """Reply to a frame, mutating the store; what cannot be read changes nothing and is counted."""
    store.sweep(now)
    try:
        ask = decode_ask(frame)
        _check_tokens(ask, store.settings.vocab_size)
    except FrameError as error:
        store.counts["malformed_frames"] += 1
        return Refusal(error=str(error))
    return _answer(ask, store, now)


def _answer(ask: Ask, store: DraftStore, now: Seconds) -> Answer:
    """Register, fetch, update."""
    held = {group.group: store.register(group.group, group.ttl_s, group.prompt, now) for group in ask.registered}
    alien, full = ([group for group, found in held.items() if found is outcome] for outcome in (False, None))
    store.counts["alien_prompts"] += len(alien)
    asked, rows = columns(ask.fetched, CACHE_STATE), columns(ask.updates.columns, ROW)
    tokens = np.frombuffer(ask.updates.tokens, "<i4")
    if alien:
        theirs = np.isin(rows[:, GROUP], alien)
        asked, tokens = asked[~np.isin(asked[:, GROUP], alien)], tokens[~np.repeat(theirs, rows[:, LENGTH])]
        rows = rows[~theirs]
    told = store.exchange(asked, rows, tokens, now)
    refused = {*full, *told.full}
    return Answer(
        number=ask.number,
        num_fetched=told.num_fetched,
        states=raw_columns(told.states),
        rows=Rows(raw_columns(told.rows), told.tokens.tobytes()),
        receipts=raw_columns(told.receipts),
        unknown=sorted({*told.unknown} - refused),
        full=sorted(refused),
        alien=alien,
        counters={**store.counts, "groups": store.num_groups, "bytes": store.num_bytes},
    )
