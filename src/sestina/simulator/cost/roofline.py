"""A step cost from a model's shape, how an instance shares it out, and what a GPU reaches.

    weights  bytes of a GPU's share / BW_eff; of experts those that a batch touches (step.py)
    kappa    bytes of a token's keys and values on a GPU / BW_eff
    c_dense  2 operations for each parameter that a row goes through, over all GPUs / F_eff
    c_attn   4 * layers * heads * head size, over all GPUs / F_eff
    c_T      the preset's, and what each row sends in collective operations; their latencies add to every step

Roofline and symbols: EfficientRollout, section 4 (algorithms-and-numbers E-A; C_attn as its published constants have
it). Latent attention decodes over compressed keys and values (arXiv 2405.04434, section 2.1.2), prefill over whole
ones. An all-reduce over n GPUs sends 2 (n - 1) / n of its bytes (Patarasuk and Yuan 2009). Attention's replicas and
experts' GPUs are taken to be evenly loaded, and a step to overlap none of its communication.
"""

from dataclasses import dataclass
from typing import assert_never

from sestina.config.sim import GpuConfig, LinkConfig
from sestina.models.config import GroupedAttentionConfig, LatentAttentionConfig, ShapeConfig
from sestina.models.size import Parameters, is_sparse, parameters
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.config import EngineConfig, SGLangEngineConfig
from sestina.rollout.memory import instance_memory
from sestina.simulator.cost.step import EngineCost, ExpertsCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How the GPUs of an instance share out a model."""

    gpus: int
    attention: int
    """GPUs that attend to the same sequences."""
    experts: int
    """GPUs that share out a layer's experts."""


def sharing_of(engine: EngineConfig) -> Sharing:
    """Return an engine's; an embedded one has one GPU."""
    if not isinstance(engine, SGLangEngineConfig):
        return Sharing(gpus=1, attention=1, experts=1)
    attention = engine.tensor_parallel // engine.data_parallel
    return Sharing(gpus=engine.tensor_parallel, attention=attention, experts=engine.expert_parallel)


def roofline(shape: ShapeConfig, engine: EngineConfig, gpu: GpuConfig, link: LinkConfig | None) -> EngineCost:
    """Return what an instance's steps take; `link` connects its GPUs, where it has several."""
    value = 2 if engine.dtype == "bfloat16" else 4
    sharing, held = sharing_of(engine), parameters(shape)
    memory = instance_memory(shape, engine, int(gpu.memory_gib * 2**30))
    flops = gpu.flops * sharing.gpus
    row_bytes, hops = _sent(shape, sharing, value) if sharing.gpus > 1 else (0.0, 0)
    row_link_s = row_bytes / link.bytes_s if link else 0.0
    step = StepCost(
        weights_s=value * _read(shape, held, sharing) / gpu.memory_bytes_s,
        kv_token_s=memory.token_bytes / memory.replicas / gpu.memory_bytes_s,
        row_s=2 * _active(shape, held) / flops,
        row_kv_s=_attention(shape) / flops,
        plain_sequence_s=gpu.sequence_s + row_link_s,
        verify_sequence_s=gpu.verify_sequence_s + row_link_s,
        verify_token_s=row_link_s,
        draft_token_s=gpu.draft_token_s,
        step_s=gpu.step_s + hops * (link.latency_s if link else 0.0),
    )
    return EngineCost(
        step=step,
        prefill_row_kv_s=_attention(shape, compressed=False) / flops,
        max_step_tokens=gpu.prefill_tokens,
        experts=_experts(shape, held, sharing, value / gpu.memory_bytes_s),
    )


def active_parameters(shape: ShapeConfig) -> float:
    """Return how many parameters a row goes through."""
    return _active(shape, parameters(shape))


def attention_flops(shape: ShapeConfig) -> float:
    """Return the operations of a row over one token of its context, keys and values whole."""
    return _attention(shape, compressed=False)


def _read(shape: ShapeConfig, held: Parameters, sharing: Sharing) -> float:
    """Count a GPU's parameters that every step reads: no experts, and of the embedding only rows."""
    shared = (held.dense + _output(shape, held)) / sharing.gpus
    return shared + held.attention / sharing.attention + held.whole


def _active(shape: ShapeConfig, held: Parameters) -> float:
    routed = 0.0 if shape.experts is None else held.experts * shape.experts.top_k / shape.experts.num_experts
    return held.attention + held.dense + held.whole + _output(shape, held) + routed


def _output(shape: ShapeConfig, held: Parameters) -> int:
    """Count the matrix of the output, which may be the embedding's."""
    return held.output or shape.vocab_size * shape.hidden_size


def _experts(shape: ShapeConfig, held: Parameters, sharing: Sharing, value_s: float) -> ExpertsCost | None:
    experts = shape.experts
    if experts is None:
        return None
    # What is not shared out by experts is shared out within each, so that every GPU has as much.
    return ExpertsCost(
        all_s=held.experts / sharing.gpus * value_s,
        missed=1 - experts.top_k / experts.num_experts,
    )


def _attention(shape: ShapeConfig, *, compressed: bool = True) -> float:
    match shape.attention:
        case GroupedAttentionConfig() as grouped:
            return 4.0 * shape.num_layers * grouped.num_heads * grouped.head_size
        case LatentAttentionConfig() as latent:
            widths = 2 * latent.kv_rank + latent.rope_size
            if not compressed:
                widths = latent.nope_size + latent.rope_size + latent.value_size
            return 2.0 * shape.num_layers * latent.num_heads * widths
        case _:
            assert_never(shape.attention)


def _sent(shape: ShapeConfig, sharing: Sharing, value: int) -> tuple[float, int]:
    """Return the bytes that a GPU sends for each row of a step, and the number of collective operations."""
    row, gpus = shape.hidden_size * value, sharing.gpus
    reduced = 2 * (gpus - 1) / gpus * row
    sent, hops = 0.0, 0
    for layer in range(shape.num_layers):
        if sharing.attention > 1:
            # Each replica of attention has its part of the rows.
            sent, hops = sent + 2 * (sharing.attention - 1) / gpus * row, hops + 1
        if sharing.experts > 1 and shape.experts is not None and is_sparse(shape, layer):
            # To the experts and back; every GPU sends its own rows.
            sent, hops = sent + 2 * shape.experts.top_k * row / gpus, hops + 2
        else:
            sent, hops = sent + reduced, hops + 1
    return sent, hops
