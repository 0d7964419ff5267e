"""The points of a calibration: powers of two of the batch, contexts four times as long each, the paper's lengths."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.pages import PAGE_TOKENS

LENGTHS = (3, 7, 11, 15)
"""Draft tokens of a sequence (EfficientRollout; algorithms-and-numbers E-B)."""

MOST_BATCH = 128
SHORTEST_TOKENS = 64
JOINED_BATCHES, JOINED, TEXTS = (1, 8, 32), (1, 4), (8, 24, 56, 120, 200, 360)
"""Batches that chunks join, so many at once, from texts of so many tokens."""

JOINED_STEPS = PAGE_TOKENS
"""Of a chunk that joins: it draws a token in each."""

ROOM_TOKENS = 128
"""What sequences grow by while their points are measured, once all of them decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One batch of one context; its plain step, and the draft lengths there is room for."""

    batch: int
    sequence_tokens: int
    room_tokens: int
    """What its sequences grow by: the first ones decode while the last are prefilled."""
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Chunks of JOINED_STEPS tokens each that join a batch."""

    cell: Cell
    chunks: int
    text_tokens: int
    """What each starts from."""
    cached: bool
    """Whether whole pages of it are in the cache."""

    @property
    def cached_tokens(self) -> int:
        """Return what is found of each text: whole pages, and never its last token."""
        return (self.text_tokens - 1) // PAGE_TOKENS * PAGE_TOKENS if self.cached else 0


def cells_of(engine: TorchEngineConfig, *, max_context_tokens: int) -> tuple[list[Cell], list[str]]:
    """Return what fits an engine, and in words what does not."""
    cells: list[Cell] = []
    left_out: list[str] = []
    for tokens in _contexts(max_context_tokens):
        for batch in _batches(engine.max_running):
            name = f"batch {batch} of {tokens} tokens"
            room = ROOM_TOKENS + _filling_steps(engine, batch, tokens)
            if tokens + room > max_context_tokens:
                longest = f"the longest context is {max_context_tokens}"
                left_out.append(f"{name}: {tokens + room} tokens once it has been measured, {longest}")
                continue
            held = batch * (tokens + room + PAGE_TOKENS)
            if held > engine.kv_capacity_tokens:
                left_out.append(f"{name}: {held} KV tokens, the engine holds {engine.kv_capacity_tokens}")
                continue
            lengths = tuple(g for g in LENGTHS if batch * (g + 1) <= engine.max_step_tokens)
            cells.append(Cell(batch=batch, sequence_tokens=tokens, room_tokens=room, lengths=lengths))
            left_out += [
                f"{name}, {g} draft tokens: {batch * (g + 1)} rows, a step holds {engine.max_step_tokens}"
                for g in LENGTHS
                if g not in lengths
            ]
    return cells, left_out


def joins_of(cells: Sequence[Cell], engine: TorchEngineConfig, *, max_context_tokens: int) -> list[Join]:
    """Return what chunks may join the batches of the shortest context: few and many, short texts and long, cached."""
    joined = [cell for cell in cells if cell.sequence_tokens == SHORTEST_TOKENS and cell.batch in JOINED_BATCHES]
    texts = [text for text in TEXTS if text + JOINED_STEPS <= max_context_tokens]
    wanted = [
        Join(cell=cell, chunks=chunks, text_tokens=text, cached=cached)
        for cell, chunks, text, cached in itertools.product(joined, JOINED, texts, (False, True))
    ]
    return [join for join in wanted if _has_room(join, engine) and join.cached == bool(join.cached_tokens)]


def _has_room(join: Join, engine: TorchEngineConfig) -> bool:
    """Whether all chunks are in with one step, and find what they have left when they come back."""
    cell, texts = join.cell, join.chunks * (join.text_tokens + PAGE_TOKENS)
    held = cell.batch * (cell.sequence_tokens + cell.room_tokens + PAGE_TOKENS) + 2 * texts
    rows = cell.batch + join.chunks * join.text_tokens
    running = cell.batch + join.chunks
    return running <= engine.max_running and rows <= engine.max_step_tokens and held <= engine.kv_capacity_tokens


def _filling_steps(engine: TorchEngineConfig, batch: int, tokens: int) -> int:
    """Return the most steps until the last prompt is in: prefill has the rows that decoding leaves."""
    if batch == 1:
        return 0
    return math.ceil(batch * tokens / max(1, engine.max_step_tokens - batch + 1))


def _batches(most: int) -> list[int]:
    most = min(most, MOST_BATCH)
    return [1 << power for power in range(most.bit_length())]


def _contexts(most: int) -> list[int]:
    contexts: list[int] = []
    tokens = SHORTEST_TOKENS
    while tokens + ROOM_TOKENS <= most:
        contexts.append(tokens)
        tokens *= 4
    return contexts
