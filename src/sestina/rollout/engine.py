"""The one Protocol every rollout engine obeys, and the records that cross it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from sestina.core.ids import RequestId
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version

if TYPE_CHECKING:
    import torch

Finish: TypeAlias = Literal["stop", "length", "chunk", "abort"]
"""Why a chunk ended: end-of-sequence drawn, response at its limit, chunk budget spent, aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """One chunk of one response: continue `prompt + generated` by at most `max_tokens`."""

    id: RequestId
    prompt: TokenArray
    """[prompt tokens]"""
    generated: TokenArray
    """[tokens of earlier chunks]; empty in the first chunk, wherever those chunks ran."""
    max_tokens: int
    """Budget of this chunk, at least 1."""
    max_new_tokens: int
    """Limit of the whole response, counting `generated`."""
    temperature: float
    """Sampling temperature; 0 takes the most likely token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkResult:
    """What a chunk produced and what it cost."""

    id: RequestId
    tokens: TokenArray
    """[produced tokens], the end-of-sequence token included when `finish` is "stop"."""
    logprobs: LogprobArray
    """[produced tokens]: log p of each under the sampling temperature (at 1 when greedy)."""
    finish: Finish
    version: Version
    """Weights that produced every token of this chunk."""
    submitted_s: Seconds
    started_s: Seconds
    finished_s: Seconds
    """Engine's monotonic clock: submitted, first in a batch, last token known."""
    prefilled_tokens: int
    """Tokens whose KV was computed without producing output (prompt, resumed chunk, after preemption)."""
    cached_tokens: int
    """Tokens whose KV was found in the prefix cache."""
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy an engine is, and its counters since it started."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    steps: int
    decoded_tokens: int
    prefilled_tokens: int
    cached_tokens: int
    preemptions: int


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

        Raises EngineError when chunks are in flight, and when a tensor is missing, unknown or of another shape; the old
        weights are then gone and `submit` refuses until a complete set has been loaded.
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

    def load(self) -> EngineLoad:
        """Return the current load; mutates nothing."""
        ...
