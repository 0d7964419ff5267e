"""A chunk on its way through the embedded engine."""

from dataclasses import dataclass, field

import numpy as np

from sestina.core.records import ChunkRequest, ChunkResult, Finish, KvTraffic, VersionSpan
from sestina.core.units import LogprobArray, Seconds, TokenArray, Version
from sestina.kvpool.entry import Entry
from sestina.kvpool.pool import Near


def _no_logprobs() -> LogprobArray:
    return np.zeros(0, np.float32)


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One chunk and what the engine keeps of it outside the slot table."""

    request: ChunkRequest
    key: int
    """Noise key of the request (core.noise)."""
    submitted_s: Seconds
    version: Version
    """Weights that draw its tokens."""
    known: TokenArray
    """Tokens to start from: prompt and earlier chunks, and after a preemption this chunk's too."""
    logprobs: LogprobArray = field(default_factory=_no_logprobs)
    """Of this chunk's tokens in `known`."""
    started_s: Seconds | None = None
    ended_s: Seconds | None = None
    """When its last token was known, where its result has been held back since."""
    slot: int = -1
    """Row of the slot table while running."""
    pages: list[int] = field(default_factory=list)
    """Held pages in token order."""
    pages_left: list[int] = field(default_factory=list)
    """What it held when it left the slot table; theirs is its KV until the next step is planned."""
    num_published: int = 0
    """Leading pages whose content is known to the prefix tree."""
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    pooled: Entry | Near | None = None
    """KV that was taken out of the pool, until it is in pages."""
    kv: KvTraffic = field(default_factory=KvTraffic)
    kv_cost_s: Seconds = 0.0
    """What fetching `pooled` has cost."""
    spans: list[VersionSpan] = field(default_factory=list[VersionSpan])
    """Tokens of this chunk that were drawn with other weights, or another cache, than those to come."""
    kept_kv: bool = False
    """Whether older weights have left keys and values that it goes on from."""

    @property
    def base(self) -> int:
        """Tokens known before this chunk."""
        return len(self.request.prompt) + len(self.request.generated)

    @property
    def limit(self) -> int:
        """Number of known tokens at which this chunk ends."""
        whole = len(self.request.prompt) + self.request.max_new_tokens
        return min(self.base + self.request.max_tokens, whole)

    def finish(self, *, turned: bool) -> Finish:
        """Return why a chunk that has left, and drawn no end of sequence, ended: the response, a turn, or only it."""
        if len(self.known) == len(self.request.prompt) + self.request.max_new_tokens:
            return "length"
        return "turn" if turned else "chunk"

    def turn(self, length: int, version: Version, *, kept_kv: bool) -> None:
        """Close the span that ends with `length` known tokens; the next are drawn otherwise."""
        drawn = length - self.base - sum(span.num_tokens for span in self.spans)
        if drawn:
            self.spans.append(VersionSpan(version=self.version, num_tokens=drawn, kept_kv=self.kept_kv))
        self.version, self.kept_kv = version, kept_kv

    def result(self, finish: Finish, now: Seconds) -> ChunkResult:
        """Report a chunk that has left the slot table."""
        return ChunkResult(
            id=self.request.id,
            tokens=self.known[self.base :].copy(),
            logprobs=self.logprobs,
            finish=finish,
            version=self.version,
            submitted_s=self.submitted_s,
            started_s=now if self.started_s is None else self.started_s,
            finished_s=now if self.ended_s is None else self.ended_s,
            prefilled_tokens=self.prefilled_tokens,
            cached_tokens=self.cached_tokens,
            preemptions=self.preemptions,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            kv=self.kv,
            earlier=tuple(self.spans),
            kept_kv=self.kept_kv,
        )
