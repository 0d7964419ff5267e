"""Packed tokens as objectives see them. T tokens; those of responses that count have a weight above 0."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

Sums = dict[str, Tensor]
"""Scalars to be added over micro-batches and ranks, then divided by the number of response tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """What the objective needs to know of each token, next to the trained model's logprobs."""

    weights: Float[Tensor, " t"]
    """Share of the token in the loss; 0 for prompts and samples that do not count."""
    advantages: Float[Tensor, " t"]
    sampled_logprobs: Float[Tensor, " t"]
    """As the rollout drew them: the behaviour policy."""
    reference_logprobs: Float[Tensor, " t"] | None = None
    """Under the initial model; None without a KL penalty."""
    proximal_logprobs: Float[Tensor, " t"] | None = None
    """Under the trainer's weights before the batch; None where they are not computed."""
    ages: Float[Tensor, " t"] | None = None
    """Versions by which the weights that drew the token are behind the trainer's before the batch; None: 0."""
    kept_kv: Bool[Tensor, " t"] | None = None
    """Whether it was drawn over keys and values of older weights; None: nowhere."""
    sequences: Int[Tensor, " t"] | None = None
    """Number, from 0, of the token's sequence among those packed together."""

    @property
    def responses(self) -> Float[Tensor, " t"]:
        """1 for tokens that count, else 0."""
        return (self.weights > 0).to(self.weights.dtype)

    @property
    def fresh(self) -> Float[Tensor, " t"]:
        """1 for tokens that count and were drawn from the very weights the trainer has before the batch, else 0."""
        fresh = self.responses
        if self.ages is not None:
            fresh = fresh * (self.ages == 0)
        return fresh if self.kept_kv is None else fresh * ~self.kept_kv
