"""A finished batch as the trainer takes it, and as the metrics describe it."""

import math
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sestina.controller.sample import Sample
from sestina.core.units import Seconds
from sestina.telemetry.traces import tail_start
from sestina.transport.messages import SampleBatch


def to_batch(samples: Sequence[Sample]) -> SampleBatch:
    """Return the samples, which are ordered by (group, sample), as arrays."""
    groups = {group: index for index, group in enumerate(dict.fromkeys(sample.id.group for sample in samples))}
    responses = [sample.tokens for sample in samples]
    parts = [part for sample, tokens in zip(samples, responses, strict=True) for part in (sample.prompt.tokens, tokens)]
    return SampleBatch(
        groups=np.array([groups[sample.id.group] for sample in samples], np.int32),
        prompt_lengths=np.array([len(sample.prompt.tokens) for sample in samples], np.int32),
        response_lengths=np.array([len(tokens) for tokens in responses], np.int32),
        tokens=np.concatenate(parts),
        logprobs=np.concatenate([sample.logprobs for sample in samples]),
        rewards=np.array([sample.reward for sample in samples], np.float32),
    )


def rollout_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the `rollout/` namespace of a batch; means are over samples that have a reward where rewards matter.

    `tokens_crc32` identifies the batch's tokens: runs that differ only in scheduling share it.
    """
    lengths = np.array([sample.num_tokens for sample in samples])
    rewarded = [sample for sample in samples if not math.isnan(sample.reward)]
    kinds = Counter(sample.outcome.kind for sample in samples if sample.outcome is not None)
    chunks = [chunk for sample in samples for chunk in sample.chunks]
    metrics = {
        "raw_reward": _mean([sample.reward for sample in rewarded]),
        "reward_failures": len(samples) - len(rewarded),
        "response_len/mean": float(lengths.mean()),
        "response_len/max": int(lengths.max()),
        "response_len/p90": float(np.quantile(lengths, 0.9)),
        "correct_response_len/mean": correct_length(samples),
        "truncated_ratio": _mean([sample.finish == "length" for sample in samples]),
        "reward_s/mean": _mean([sample.outcome.elapsed_s for sample in samples if sample.outcome is not None]),
        "chunks": len(chunks),
        "preemptions": sum(chunk.preemptions for chunk in chunks),
        "prefilled_tokens": sum(chunk.prefilled_tokens for chunk in chunks),
        "cached_tokens": sum(chunk.cached_tokens for chunk in chunks),
        "tail_share": _tail_share(samples),
        "tokens_crc32": zlib.crc32(np.concatenate([sample.tokens for sample in samples]).tobytes()),
    }
    metrics |= {f"reward_{kind}": kinds[kind] for kind in ("raised", "timeout", "died")}
    return {f"rollout/{name}": float(value) for name, value in metrics.items()}


def eval_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the `eval/` namespace of held-out responses; one without a reward counts as wrong, and is counted."""
    rewards = np.nan_to_num([sample.reward for sample in samples])
    return {
        "eval/accuracy": float(rewards.mean()),
        "eval/response_len/mean": _mean([sample.num_tokens for sample in samples]),
        "eval/correct_response_len/mean": correct_length(samples),
        "eval/reward_failures": float(sum(math.isnan(sample.reward) for sample in samples)),
    }


def correct_length(samples: Sequence[Sample]) -> float:
    """Return the mean length of responses whose reward is above zero; NaN when there are none."""
    return _mean([sample.num_tokens for sample in samples if sample.reward > 0])


def _tail_share(samples: Sequence[Sample]) -> float:
    """Return the part of the rollout's time that passed after 90 % of the responses had finished."""
    finished: list[Seconds] = [sample.chunks[-1].finished_s for sample in samples]
    start, end = min(sample.offered_s for sample in samples), max(finished)
    return (end - tail_start(finished)) / max(end - start, 1e-9)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
