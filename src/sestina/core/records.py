"""The records that cross between controller and rollout engines."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.ids import RequestId
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version

KvSource: TypeAlias = Literal["none", "dram", "ssd", "absent", "corrupt", "failed", "dearer"]
"""Where a resumed chunk had its keys and values from; from "absent" on, why it has computed them again."""

KvTarget: TypeAlias = Literal["none", "dram", "ssd", "full", "failed"]
"""Where a chunk has left its keys and values; from "full" on, why it has not."""

Finish: TypeAlias = Literal["stop", "length", "turn", "chunk", "abort"]
"""Why a chunk ended: end-of-sequence drawn, response at its limit, turn over, chunk budget spent, aborted."""

NO_TURN = -1
"""In the place of a token that ends a turn: none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """One chunk of one response: continue `prompt + generated` by at most `max_tokens`."""

    id: RequestId
    prompt: TokenArray
    """[prompt tokens]"""
    generated: TokenArray
    """[tokens of earlier chunks, and what was observed between them]; empty in the first chunk, wherever those ran."""
    max_tokens: int
    """Budget of this chunk, at least 1."""
    max_new_tokens: int
    """Limit of the whole response, counting `generated`."""
    temperature: float
    """Sampling temperature; 0 takes the most likely token."""
    stop_at: int = 0
    """The token of the response, from 1, that is the end of sequence, which none before it is; 0: as drawn."""
    turn_token: int = NO_TURN
    """Drawing it ends the chunk: what follows in the response is not the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTraffic:
    """What a chunk took from a pool of keys and values, and what it left there."""

    source: KvSource = "none"
    target: KvTarget = "none"
    loaded_tokens: int = 0
    """Tokens whose keys and values came from the pool."""
    moved_bytes: int = 0
    """Taken and left."""
    demoted: int = 0
    evicted: int = 0
    """Entries of others that made room: moved from memory to the SSD, and dropped."""
    seconds: Seconds = 0.0
    """Of the engine, and processor time of the thread that reads and writes for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Tokens that follow each other, all drawn with the same weights."""

    version: Version
    num_tokens: int
    kept_kv: bool = False
    """Drawn over keys and values that older weights have left."""


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
    """Weights that produced the last token of this chunk."""
    submitted_s: Seconds
    started_s: Seconds
    finished_s: Seconds
    """Engine's monotonic clock: submitted, first in a batch, last token known."""
    prefilled_tokens: int
    """Tokens whose KV was computed without producing output (prompt, resumed chunk, after preemption)."""
    cached_tokens: int
    """Tokens whose KV was found in the prefix cache."""
    preemptions: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    """Drafted tokens that were what the model drew."""
    kv: KvTraffic = KvTraffic()
    earlier: tuple[VersionSpan, ...] = ()
    """Of this chunk's tokens those that it had when its weights, or what becomes of its cache, last changed."""
    kept_kv: bool = False
    """Whether the tokens after `earlier` were drawn over keys and values that older weights have left."""

    @property
    def spans(self) -> tuple[VersionSpan, ...]:
        """Which weights produced which tokens, in order, all tokens included."""
        rest = len(self.tokens) - sum(span.num_tokens for span in self.earlier)
        return (*self.earlier, VersionSpan(version=self.version, num_tokens=rest, kept_kv=self.kept_kv))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine can hold."""

    kv_capacity_tokens: int
    page_tokens: int
    max_running: int
    batch_invariant: bool
    """Whether a token's bits are the same in any batch (checked, not assumed)."""
    drafter: str = ""
    """How the engine's drafting model multiplies; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvUse:
    """What the keys and values of an engine's chunks come to."""

    submitted: int
    """Chunks that it has been given since it started; the rest of this is of those that have not ended."""
    peak_tokens: int
    """Most that it can come to hold for them; what several share counts once, where the engine knows."""
    capacity_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy an engine is, and its counters since it started."""

    running: int
    waiting: int
    kv_used_tokens: int
    kv: KvUse
    steps: int
    """Forward passes; of an engine in another process, signs that it is getting on."""
    decoded_tokens: int
    prefilled_tokens: int
    cached_tokens: int
    preemptions: int
    restarts: int = 0
    """Servers started again after one was lost."""
