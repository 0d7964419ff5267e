"""What an optimizer batch takes, from its packed tokens.

A row costs 6 operations for each parameter that it goes through, 2 forward and 4 backward, and attention to half of its
sequence; recomputing all activations is one more forward pass, and so are the logprobs of the policy that the step
starts from (Narayanan et al., arXiv 2104.04473, section 3). A pipeline of p stages idles for (p - 1) / m of the time of
m micro-batches (section 2.2). Communication beside that, the optimizer and uneven packs are in the share of the peak
that the preset states.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sestina.core.units import Seconds
from sestina.models.config import ShapeConfig
from sestina.simulator.cost.roofline import active_parameters, attention_flops
from sestina.trainer.config import TrainerConfig

_FORWARD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCost:
    """Of all trainer ranks."""

    shape: ShapeConfig
    trainer: TrainerConfig
    rank_flops: float
    """Operations per second of one rank."""

    def batch_s(self, lengths: Sequence[int]) -> Seconds:
        """Return the time of one batch of sequences of these lengths, prompts included."""
        tokens = sum(lengths)
        attended = sum(length * length for length in lengths) / 2
        forward = _FORWARD * active_parameters(self.shape) * tokens + attention_flops(self.shape) * attended
        passes = 1 + 3 + (self.trainer.recompute == "full")
        return passes * forward / (self.rank_flops * self.trainer.num_ranks) * (1 + self._idle(tokens))

    def _idle(self, tokens: int) -> float:
        per_replica = tokens / self.trainer.data_parallel
        micro_batches = max(1, math.ceil(per_replica / self.trainer.max_micro_batch_tokens))
        return (self.trainer.pipeline_parallel - 1) / micro_batches
