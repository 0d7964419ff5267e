"""What a user sets about training."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from sestina.core.ranges import Count, CountOrNone, NonNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW and its schedule."""

    learning_rate: Positive
    min_learning_rate: NonNegative
    """Where the decay ends."""
    warmup_steps: CountOrNone
    """Optimizer steps of linear growth from 0."""
    decay: Literal["constant", "linear", "cosine"]
    decay_steps: Count
    """Optimizer steps until `min_learning_rate`, warm-up included; `constant` ignores it."""
    weight_decay: NonNegative
    beta1: Annotated[float, Ge(0), Lt(1)]
    beta2: Annotated[float, Ge(0), Lt(1)]
    eps: Positive
    clip_grad: NonNegative
    """Largest gradient norm; 0 does not clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """Parallel layout, memory and optimizer of the Megatron-Core ranks."""

    num_ranks: Count
    tensor_parallel: Count
    pipeline_parallel: Count
    sequence_parallel: bool
    expert_parallel: Count
    """Ranks that share out a layer's experts."""
    expert_tensor_parallel: Count
    """Ranks that share out one expert."""
    distributed_optimizer: bool
    """Shard optimizer state over data-parallel ranks."""
    recompute: Literal["none", "selective", "full"]
    """Which activations are computed again in the backward pass."""
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    max_micro_batch_tokens: Count
    """Token budget of one micro-batch; every sample must fit."""
    max_logprob_diff: Positive
    """The run stops when mean |logprob(trainer) - logprob(rollout)| on the policy that sampled exceeds this."""
    optimizer: OptimizerConfig

    @property
    def data_parallel(self) -> int:
        """Replicas of the model."""
        return self.num_ranks // (self.tensor_parallel * self.pipeline_parallel)

    @property
    def expert_data_parallel(self) -> int:
        """Replicas of each expert."""
        return self.num_ranks // (self.expert_parallel * self.expert_tensor_parallel * self.pipeline_parallel)
