"""From a batch of samples to micro-batches of packed tokens.

Every array of a micro-batch is aligned with the position that predicts: position i of a sequence holds token i, and as
its target token i + 1 with that token's weight, advantage and logprob. The last position predicts nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from sestina.algorithms.packing import pack
from sestina.algorithms.tokens import PolicyTokens
from sestina.core.units import Version
from sestina.transport.messages import SampleBatch

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """N samples, T tokens: a batch with its advantages, aligned with predicting positions."""

    bounds: IntArray
    """[N + 1] first position of each sample, and T"""
    groups: IntArray
    """[N]"""
    tokens: IntArray
    """[T]"""
    targets: IntArray
    """[T]; 0 at last positions"""
    responses: FloatArray
    """[T] 1 where the target was drawn in a response that counts, else 0"""
    response_lengths: IntArray
    """[N] drawn tokens; 0 for a sample that does not count"""
    advantages: FloatArray
    """[T]"""
    logprobs: FloatArray
    """[T] as sampled; 0 where there is no response"""
    ages: FloatArray
    """[T] versions by which what drew the target is behind the trainer; 0 where there is no response"""
    kept_kv: npt.NDArray[np.bool_]
    """[T] whether the target was drawn over keys and values of older weights"""

    def lengths(self, samples: Sequence[int]) -> list[int]:
        """Return how many tokens each of these samples has."""
        return (self.bounds[1:] - self.bounds[:-1])[list(samples)].tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """T packed tokens ready for one forward pass."""

    samples: tuple[int, ...]
    tokens: Tensor
    """[1, T]"""
    positions: Tensor
    """[1, T] within each sequence"""
    targets: Tensor
    """[T]"""
    packing: PackedSeqParams
    policy: PolicyTokens
    denominator: int
    """What this micro-batch adds to the number the loss is divided by."""


def align(
    batch: SampleBatch,
    advantages: npt.NDArray[np.float32],
    counted: npt.NDArray[np.bool_],
    *,
    version: Version = 0,
) -> Samples:
    """Align a batch that weights of `version` are trained on; `advantages` and `counted` are by sample."""
    prompts, responses = batch.prompt_lengths.astype(np.int64), batch.response_lengths.astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(prompts + responses)])
    num_tokens = int(bounds[-1])
    sample = np.repeat(np.arange(len(prompts)), prompts + responses)
    offset = np.arange(num_tokens) - bounds[sample]
    predicts = (offset >= prompts[sample] - 1) & (offset < prompts[sample] + responses[sample] - 1)
    drawn = predicts.copy()
    if batch.drawn is not None:
        drawn[predicts] = batch.drawn
    targets = np.append(batch.tokens[1:], 0).astype(np.int64)
    targets[bounds[1:] - 1] = 0
    logprobs, ages = np.zeros((2, num_tokens), np.float32)
    logprobs[predicts] = batch.logprobs
    ages[predicts] = 0 if batch.versions is None else version - batch.versions
    kept_kv = np.zeros(num_tokens, np.bool_)
    kept_kv[predicts] = False if batch.kept_kv is None else batch.kept_kv
    return Samples(
        bounds=bounds,
        groups=batch.groups.astype(np.int64),
        tokens=batch.tokens.astype(np.int64),
        targets=targets,
        responses=(drawn & counted[sample]).astype(np.float32),
        response_lengths=np.where(counted, batch.drawn_lengths.astype(np.int64), 0),
        advantages=np.where(drawn, advantages[sample], 0).astype(np.float32),
        logprobs=logprobs,
        ages=ages,
        kept_kv=kept_kv,
    )


def minibatches(samples: Samples, count: int) -> list[list[int]]:
    """Cut a batch into `count` runs of whole groups, equally many in each."""
    num_groups = int(samples.groups.max()) + 1
    which = samples.groups * count // num_groups
    return [np.flatnonzero(which == i).tolist() for i in range(count)]


def micro_batches(
    samples: Samples,
    chosen: Sequence[int],
    *,
    budget: int,
    replicas: int,
    replica: int,
    loss_mean: Literal["token", "sequence"],
    pad_to: int,
    device: torch.device,
) -> list[MicroBatch]:
    """Pack samples and return this replica's share; every replica gets equally many.

    `pad_to`: the number of tokens becomes a multiple of this (sequence parallelism splits them), by a sequence that
    counts for nothing.
    """
    packs = pack(samples.lengths(chosen), budget, multiple_of=replicas)
    own = [[chosen[i] for i in packed] for packed in packs[replica::replicas]]
    return [build(samples, packed, loss_mean, pad_to, device) for packed in own]


def build(
    samples: Samples, chosen: list[int], loss_mean: Literal["token", "sequence"], pad_to: int, device: torch.device
) -> MicroBatch:
    """Return one micro-batch of these samples; see `micro_batches`."""
    sizes = samples.lengths(chosen)
    padding = -sum(sizes) % pad_to if sizes else pad_to
    index = np.concatenate(
        [np.arange(samples.bounds[i], samples.bounds[i + 1]) for i in chosen] or [np.zeros(0, np.int64)]
    )
    lengths = [*sizes, padding] if padding else sizes

    def column(values: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(np.pad(values[index], (0, padding))).to(device)

    weights, denominator = samples.responses, int(samples.response_lengths[chosen].sum())
    if loss_mean == "sequence":
        per_token = 1 / np.maximum(samples.response_lengths, 1)
        weights = weights * np.repeat(per_token, np.diff(samples.bounds)).astype(np.float32)
        denominator = int((samples.response_lengths[chosen] > 0).sum())
    return MicroBatch(
        samples=tuple(chosen),
        tokens=column(samples.tokens)[None],
        positions=torch.cat([torch.arange(n) for n in lengths])[None].to(device),
        targets=column(samples.targets),
        packing=_packing(lengths, device),
        policy=PolicyTokens(
            weights=column(weights),
            advantages=column(samples.advantages),
            sampled_logprobs=column(samples.logprobs),
            ages=column(samples.ages),
            kept_kv=column(samples.kept_kv),
            sequences=torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)]).to(device),
        ),
        denominator=denominator,
    )


def _packing(lengths: list[int], device: torch.device) -> PackedSeqParams:
    bounds = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device)
    longest = max(lengths)
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
    )
