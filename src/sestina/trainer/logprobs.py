"""Log-probability and entropy of tokens from logits whose vocabulary is sharded over tensor-parallel ranks.

T tokens, V entries of the vocabulary on this rank.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor


class _LogprobEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, temperature: float, group: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        scaled = logits.float() / temperature
        peak = scaled.amax(-1)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=group)
        scaled -= peak[:, None]
        first = dist.get_rank(group) * logits.size(-1)
        own = (targets >= first) & (targets < first + logits.size(-1))
        index = (targets - first).clamp(0, logits.size(-1) - 1)
        exponentials = scaled.exp()
        parts = torch.stack(
            [
                exponentials.sum(-1),
                (exponentials * scaled).sum(-1),
                scaled.gather(-1, index[:, None])[:, 0] * own,
            ]
        )
        dist.all_reduce(parts, group=group)
        log_total = parts[0].log()
        probabilities = exponentials.div_(parts[0][:, None])
        ctx.save_for_backward(probabilities, index, own)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        entropy = log_total - parts[1] / parts[0]
        ctx.mark_non_differentiable(entropy)
        return parts[2] - log_total, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        probabilities, index, own = ctx.saved_tensors
        grad = -probabilities * grads[0][:, None]
        grad.scatter_add_(-1, index[:, None], (grads[0] * own)[:, None])
        return (grad / ctx.temperature).to(ctx.dtype), None, None, None


def logprobs_and_entropy(
    logits: Float[Tensor, "t v"], targets: Int[Tensor, " t"], *, temperature: float, group: dist.ProcessGroup
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Return log p of each target and the entropy, in float32, of softmax(logits / temperature) over all ranks' shards.

    Gradients flow through the log-probabilities only. Does not modify the logits, unlike Megatron's own cross entropy.
    """
    logprobs, entropy = _LogprobEntropy.apply(logits, targets, temperature, group)  # type: ignore[misc]
    return logprobs, entropy
