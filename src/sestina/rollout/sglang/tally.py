"""What an SGLang engine has done so far."""

from dataclasses import dataclass

from sestina.core.records import ChunkResult, EngineLoad, KvUse
from sestina.rollout.sglang.keeper import Keeper


@dataclass(slots=True)
class Tally:
    """Sums over the chunks that have ended."""

    chunks: int = 0
    decoded_tokens: int = 0
    prefilled_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0

    def add(self, result: ChunkResult) -> None:
        """Count a chunk."""
        self.chunks += 1
        self.decoded_tokens += len(result.tokens)
        self.prefilled_tokens += result.prefilled_tokens
        self.cached_tokens += result.cached_tokens
        self.preemptions += result.preemptions

    def load(self, keeper: Keeper, kv: KvUse) -> EngineLoad:
        """Return the sums beside what the server said of itself; `steps` grows while either is alive."""
        return EngineLoad(
            running=keeper.load.num_running_reqs,
            waiting=keeper.load.num_waiting_reqs,
            kv_used_tokens=min(keeper.load.num_used_tokens, kv.capacity_tokens),
            kv=kv,
            steps=self.chunks + keeper.looks,
            decoded_tokens=self.decoded_tokens,
            prefilled_tokens=self.prefilled_tokens,
            cached_tokens=self.cached_tokens,
            preemptions=self.preemptions,
            restarts=keeper.restarts,
        )
