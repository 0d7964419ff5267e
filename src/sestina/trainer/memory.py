"""What a trainer rank needs of its GPU's memory; pure, and an upper estimate of a well-balanced micro-batch.

Weights, gradients and optimizer states are Megatron's (megatron/training/theoretical_memory_usage.py): 18 bytes for
each bfloat16 parameter, 6 + 12 / d where d replicas share the optimizer's states. Activations are those of Korthikanti
et al. (arXiv 2205.05198, section 4) counted tensor by tensor for grouped and gated layers without dropout, whose
attention never stores scores; so `selective` recompute, which drops scores, saves nothing more here.
"""

from dataclasses import dataclass
from typing import assert_never

from sestina.models.config import GroupedAttentionConfig, LatentAttentionConfig, ShapeConfig
from sestina.models.size import is_sparse, parameters
from sestina.trainer.config import TrainerConfig

_LOGIT_BYTES = 16
"""At the peak of trainer/logprobs.py: logits, their quotient by the temperature, exponentials, a product; float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerMemory:
    """Bytes of one rank of a pipeline stage."""

    stage: int
    weights: int
    gradients: int
    optimizer: int
    """Master weights and moments."""
    activations: int
    """Kept for the backward pass, of all micro-batches under way."""
    temporaries: int
    """The larger of a layer's backward pass and the logits."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.temporaries


def trainer_memory(shape: ShapeConfig, trainer: TrainerConfig) -> TrainerMemory:
    """Return what the fullest pipeline stage needs."""
    stages = (_stage(shape, trainer, stage) for stage in range(trainer.pipeline_parallel))
    return max(stages, key=lambda memory: memory.total)


def _stage(shape: ShapeConfig, trainer: TrainerConfig, stage: int) -> TrainerMemory:
    held = parameters(shape, stage, trainer.pipeline_parallel)
    experts = held.experts // (trainer.expert_parallel * trainer.expert_tensor_parallel)
    others = (held.total - held.experts - held.whole) // trainer.tensor_parallel + held.whole
    weight, optimizer = (2, 12) if trainer.dtype == "bfloat16" else (4, 8)
    replicas, expert_replicas = 1, 1
    if trainer.distributed_optimizer:
        replicas, expert_replicas = max(1, trainer.data_parallel), max(1, trainer.expert_data_parallel)
    per_stage = -(-shape.num_layers // trainer.pipeline_parallel)
    layers = [_layer(shape, trainer, layer) for layer in range(stage * per_stage, (stage + 1) * per_stage)]
    kept = trainer.max_micro_batch_tokens * _kept(shape, trainer) * len(layers)
    backward = max(layers)
    if trainer.recompute == "full":
        backward *= 2  # computed again, and its gradients
    else:
        kept = sum(layers)
    # 1F1B: as many micro-batches are under way in a stage as there are stages from it on.
    under_way = trainer.pipeline_parallel - stage
    last = stage == trainer.pipeline_parallel - 1
    logits = _logits(shape, trainer) if last else 0
    return TrainerMemory(
        stage=stage,
        weights=weight * (experts + others),
        gradients=4 * (experts + others),
        optimizer=optimizer * experts // expert_replicas + optimizer * others // replicas,
        activations=kept * under_way,
        temporaries=max(backward, logits),
    )


def _value_bytes(trainer: TrainerConfig) -> int:
    return 2 if trainer.dtype == "bfloat16" else 4


def _logits(shape: ShapeConfig, trainer: TrainerConfig) -> int:
    return _LOGIT_BYTES * trainer.max_micro_batch_tokens * shape.vocab_size // trainer.tensor_parallel


def _kept(shape: ShapeConfig, trainer: TrainerConfig) -> int:
    """Return the bytes for each token of a layer's input, which is all that full recompute keeps."""
    shared = trainer.tensor_parallel if trainer.sequence_parallel else 1
    return _value_bytes(trainer) * shape.hidden_size // shared


def _layer(shape: ShapeConfig, trainer: TrainerConfig, layer: int) -> int:
    """Return the bytes of all of a layer's tensors that its backward pass needs."""
    # Input and output of both norms, and what is compressed: shared out by sequence parallelism alone.
    along = 4 * shape.hidden_size + _latents(shape)
    values = along // (trainer.tensor_parallel if trainer.sequence_parallel else 1)
    values += (_heads(shape) + _feed_forward(shape, trainer, layer)) // trainer.tensor_parallel
    return _value_bytes(trainer) * values * trainer.max_micro_batch_tokens


def _heads(shape: ShapeConfig) -> int:
    """Count a token's queries, keys, values and attention output."""
    match shape.attention:
        case GroupedAttentionConfig() as grouped:
            return 2 * (grouped.num_heads + grouped.num_kv_heads) * grouped.head_size
        case LatentAttentionConfig() as latent:
            return 2 * latent.num_heads * (latent.nope_size + latent.rope_size + latent.value_size)
        case _:
            assert_never(shape.attention)


def _latents(shape: ShapeConfig) -> int:
    """Count a token's compressed queries and keys, before and after their norms."""
    match shape.attention:
        case GroupedAttentionConfig():
            return 0
        case LatentAttentionConfig() as latent:
            return 2 * (latent.query_rank + latent.kv_rank) + latent.rope_size
        case _:
            assert_never(shape.attention)


def _feed_forward(shape: ShapeConfig, trainer: TrainerConfig, layer: int) -> int:
    """Count a token's gate, up and gated values; with experts also its copies sent to them, evenly spread."""
    experts = shape.experts
    if experts is None or not is_sparse(shape, layer):
        return 3 * shape.ffn_size
    copy = 3 * experts.ffn_size + 2 * shape.hidden_size * trainer.expert_tensor_parallel
    return 3 * experts.num_shared * experts.ffn_size + experts.top_k * copy
