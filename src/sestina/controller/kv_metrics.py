"""What the pool of keys and values did for a batch, from its chunks."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from sestina.controller.sample import Sample
from sestina.core.units import Seconds
from sestina.rollout.config import RolloutConfig, SGLangEngineConfig

REASONS = ("full", "failed", "absent", "corrupt", "dearer")
"""Why a resumed chunk has computed keys and values again: there was no room for them; they could not be written or
read; they were dropped for others or lie on another node; they were damaged; moving them would have taken longer."""


def metrics_of_pool(rollout: RolloutConfig, samples: Sequence[Sample], rollout_s: Seconds) -> dict[str, float]:
    """Return `perf/kv_pool_*` of a batch that took `rollout_s`; nothing where there is no pool."""
    if rollout.kv_pool.kind == "none":
        return {}
    if isinstance(rollout.engine, SGLangEngineConfig):
        return kv_pool_metrics(samples, instances_s=None, tail_tokens=rollout.engine.page_tokens)
    return kv_pool_metrics(samples, instances_s=rollout_s * rollout.num_instances)


def kv_pool_metrics(
    samples: Sequence[Sample], *, instances_s: Seconds | None, tail_tokens: int = 1
) -> dict[str, float]:
    """Return `perf/kv_pool_*` of a batch whose rollout took `instances_s`, summed over instances.

    A chunk counts as resumed if its request has run before in this start of the run, and as prefilled again if more
    than its last `tail_tokens` had to be computed: the one from which it draws, or a page, where only whole ones are
    kept; what was observed before it is new. `instances_s` None: engines that do not say how long they moved.
    """
    chunks = [chunk for sample in samples for chunk in sample.chunks]
    resumed = [
        (*pair, new) for sample in samples for pair, new in zip(pairwise(sample.chunks), _observed(sample), strict=True)
    ]
    again = Counter(
        before.kv_target if before.kv_target in REASONS else chunk.kv_source
        for before, chunk, new in resumed
        if chunk.prefilled_tokens > tail_tokens + new
    )
    hits = Counter(chunk.kv_source for chunk in chunks)
    metrics: dict[str, float] = {
        "resumed": len(resumed),
        "moved_bytes": sum(chunk.kv_moved_bytes for chunk in chunks),
        "loaded_tokens": sum(chunk.kv_loaded_tokens for chunk in chunks),
        "hits_dram": hits["dram"],
        "hits_ssd": hits["ssd"],
        "prefilled_again": again.total(),
        "demoted": sum(chunk.kv_demoted for chunk in chunks),
        "evicted": sum(chunk.kv_evicted for chunk in chunks),
    }
    if instances_s is not None:
        metrics["time_share"] = sum(chunk.kv_s for chunk in chunks) / max(instances_s, 1e-9)
    metrics |= {f"prefilled_again_{reason}": again[reason] for reason in REASONS}
    return {f"perf/kv_pool_{name}": float(value) for name, value in metrics.items()}


def _observed(sample: Sample) -> list[int]:
    """Return how many tokens were observed before each chunk but the first."""
    tokens = {seen.after: len(seen.tokens) for seen in sample.observations}
    return [tokens.get(after, 0) for after in range(1, len(sample.chunks))]
