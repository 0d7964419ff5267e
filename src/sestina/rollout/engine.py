"""The one Protocol every rollout engine obeys."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.records import NO_TURN, ChunkRequest, ChunkResult, EngineInfo, EngineLoad
from sestina.core.units import Seconds, Version

if TYPE_CHECKING:
    import torch


Clock: TypeAlias = Callable[[], Seconds]
"""Says what time it is to an engine."""

Interruption: TypeAlias = Literal["refuse", "recompute", "keep_kv"]
"""What becomes of chunks in flight when weights arrive; `refuse`: there must be none, as in synchronous training."""


class Engine(Protocol):
    """Decodes many chunks at once. One owner, one thread; nothing here blocks longer than one forward pass."""

    def submit(self, request: ChunkRequest) -> None:
        """Queue a chunk; mutates the queue only.

        Raises EngineError when no verified weights are loaded, the id is already in the engine, a token is outside the
        vocabulary, or the request could not fit into the empty KV cache.
        """
        ...

    def abort(self, ids: list[RequestId]) -> None:
        """End these chunks; their results, with what they produced so far, come from the next `step`.

        Ids that are not in the engine are ignored: their results are already on the way.
        """
        ...

    def step(self) -> list[ChunkResult]:
        """Run one forward pass over the current batch and return the chunks that ended, in order of submission.

        Mutates KV cache and queues. Returns at once when idle. Raises EngineError when one request alone outgrows the
        cache.
        """
        ...

    def load_weights(self, version: Version, tensors: Mapping[str, "torch.Tensor"]) -> None:
        """Replace all weights (Hugging Face names) by verified ones and forget every cached prefix.

        Chunks in flight keep their tokens and go on under the new weights, in an engine that is built for it. Raises
        EngineError when chunks are in flight in any other, and when a tensor is missing, unknown or of another shape;
        the old weights are then gone and `submit` refuses until a complete set has been loaded.
        """
        ...

    def expect(self, upcoming: Sequence[RequestId], near: Sequence[RequestId]) -> None:
        """These requests are resumed next, somewhere; `near` are those of them that ran here last.

        Mutates nothing but what a pool of keys and values keeps at hand; an engine without one does nothing.
        """
        ...

    @property
    def version(self) -> Version | None:
        """Version of the loaded weights; None before the first `load_weights`."""
        ...

    @property
    def idle(self) -> bool:
        """True when `step` has nothing to do."""
        ...

    def info(self) -> EngineInfo:
        """Return what it can hold; the same at any time."""
        ...

    def load(self) -> EngineLoad:
        """Return the current load; mutates nothing."""
        ...

    def close(self) -> None:
        """End whatever it has started; nothing may be called after it."""
        ...


def check_chunk(chunk: ChunkRequest, *, vocab_size: int, max_context_tokens: int, kv_capacity_tokens: int) -> None:
    """Raise EngineError when an engine of this size could never run the chunk."""
    name = f"request {chunk.id}"
    known = len(chunk.prompt) + len(chunk.generated)
    if chunk.stop_at and chunk.stop_at <= len(chunk.generated):
        raise EngineError(f"{name}: its end is given as token {chunk.stop_at}, of which it has {len(chunk.generated)}")
    budget = min(chunk.max_tokens, chunk.max_new_tokens - len(chunk.generated))
    if not len(chunk.prompt) or budget <= 0:
        raise EngineError(f"{name}: prompt of {len(chunk.prompt)} tokens, chunk of {budget}")
    if not NO_TURN <= chunk.turn_token < vocab_size:
        raise EngineError(f"{name}: turns end with token {chunk.turn_token}, of a vocabulary of {vocab_size}")
    for tokens in (chunk.prompt, chunk.generated):
        if len(tokens) and (tokens.min() < 0 or tokens.max() >= vocab_size):
            raise EngineError(f"{name}: a token is outside the vocabulary of {vocab_size}")
    if known + budget > max_context_tokens:
        raise EngineError(f"{name}: {known + budget} tokens exceed the engine's context of {max_context_tokens}")
    if known + budget > kv_capacity_tokens:
        raise EngineError(f"{name}: {known + budget} tokens exceed the KV capacity of {kv_capacity_tokens}")
