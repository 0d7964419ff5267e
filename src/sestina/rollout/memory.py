"""How many tokens of keys and values an instance has room for; pure."""

from dataclasses import dataclass

from sestina.models.config import LatentAttentionConfig, ShapeConfig
from sestina.models.size import Parameters, kv_values, parameters
from sestina.rollout.config import EngineConfig, SGLangEngineConfig, TorchEngineConfig

CONTEXT_BYTES = 2 * 2**30
"""Of CUDA and NCCL, before an engine has loaded anything."""

_ACTIVATIONS = 0.1
"""Share of a GPU's memory that the embedded engine leaves to a forward pass; SGLang's is `memory_fraction`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMemory:
    """One instance's memory, as planned."""

    weights: int
    """Bytes on each GPU."""
    token_bytes: int
    """Bytes of one token's keys and values on each GPU that holds them."""
    kv_bytes: int
    """Bytes for keys and values on each GPU; may be negative."""
    replicas: int
    """Parts of an instance that hold different tokens: attention's data parallelism."""

    @property
    def kv_tokens(self) -> int:
        """Tokens that the whole instance can hold."""
        return self.replicas * self.replica_tokens

    @property
    def replica_tokens(self) -> int:
        """Tokens that the part which holds a response can hold."""
        return max(0, self.kv_bytes // self.token_bytes)


def instance_memory(shape: ShapeConfig, engine: EngineConfig, gpu_bytes: int) -> InstanceMemory:
    """Plan an instance on GPUs of `gpu_bytes` each."""
    value = 2 if engine.dtype == "bfloat16" else 4
    match engine:
        case SGLangEngineConfig():
            tensor, replicas, share = engine.tensor_parallel, engine.data_parallel, engine.memory_fraction
        case TorchEngineConfig():
            tensor, replicas, share = 1, 1, 1 - _ACTIVATIONS
    attention = max(1, tensor // replicas)
    weights = value * _held(parameters(shape), tensor, attention)
    # What SGLang does: memory that is free before the weights are loaded, times the fraction, less the weights.
    return InstanceMemory(
        weights=weights,
        token_bytes=value * kv_values(shape) // _kv_shares(shape, attention),
        kv_bytes=int(share * (gpu_bytes - CONTEXT_BYTES)) - weights,
        replicas=replicas,
    )


def _held(counted: Parameters, tensor: int, attention: int) -> int:
    shared = counted.dense + counted.experts + counted.output
    return shared // tensor + (counted.attention + counted.embedding) // attention + counted.whole


def _kv_shares(shape: ShapeConfig, attention: int) -> int:
    """Return how many GPUs share out a token's keys and values; what all heads have in common is on each."""
    if isinstance(shape.attention, LatentAttentionConfig):
        return 1
    return min(attention, shape.attention.num_kv_heads)
