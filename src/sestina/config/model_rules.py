"""Rules about how a model of known shape is shared out over ranks and GPUs.

The shape stands in the configuration or is read from the model's files; only then are its rules judged.
"""

from sestina.config.rule import Rule


def _divides(parts: int, size: int) -> str | None:
    return f"a divisor of {size}" if size % parts else None


def _at_most(value: int, limit: int) -> str | None:
    return f"at most {limit}" if value > limit else None


def _every_expert_once(num_ranks: int, expert: int, expert_tensor: int, pipeline: int) -> str | None:
    ranks = expert * expert_tensor * pipeline
    return f"a multiple of {ranks}, the ranks that hold every expert once" if num_ranks % ranks else None


def _sequence_with_experts(sequence_parallel: bool, tensor_parallel: int, _: int) -> str | None:
    needed = tensor_parallel > 1 and not sequence_parallel
    return "true: Megatron wants it where experts meet tensor parallelism" if needed else None


def _heads_of_an_attention(tensor: int, replicas: int, heads: int) -> str | None:
    if tensor % replicas:
        return None  # _divides says so
    return f"{_times(replicas)}a divisor of {heads}" if heads % (tensor // replicas) else None


def _kv_heads_of_an_attention(tensor: int, replicas: int, heads: int) -> str | None:
    """An engine repeats key/value heads where there are fewer than GPUs."""
    if tensor % replicas:
        return None
    each = tensor // replicas
    return f"{_times(replicas)}a divisor or a multiple of {heads}" if heads % each and each % heads else None


def _times(replicas: int) -> str:
    return f"{replicas} times " if replicas > 1 else ""


def _positions(new_tokens: int, prompt_tokens: int, positions: int) -> str | None:
    return f"at most {positions - prompt_tokens}" if prompt_tokens + new_tokens > positions else None


def _groups_of_inputs(group: int, source: str, hidden: int, ffn: int, heads: int, head: int) -> str | None:
    widths = sorted({hidden, ffn, heads * head})
    if source != "quantized" or not any(width % group for width in widths):
        return None
    return f"a divisor of {' and '.join(map(str, widths))}, the inputs of the quantised products"


def _response_for_every_replica(batch: int, minibatches: int, num_ranks: int, tensor: int, pipeline: int) -> str | None:
    replicas = num_ranks // (tensor * pipeline)
    needed = minibatches * replicas
    return (
        f"at least {needed}: each minibatch has a response for each of {replicas} replicas" if batch < needed else None
    )


_SHAPE = "model.shape"
_ATTENTION, _EXPERTS = f"{_SHAPE}.attention", f"{_SHAPE}.experts"
_TENSOR, _PIPELINE, _RANKS = "trainer.tensor_parallel", "trainer.pipeline_parallel", "trainer.num_ranks"
_EXPERT, _EXPERT_TENSOR = "trainer.expert_parallel", "trainer.expert_tensor_parallel"
_ENGINE = "rollout.engine"
_OF_AN_ATTENTION = (f"{_ENGINE}.tensor_parallel", f"{_ENGINE}.data_parallel")

MODEL_RULES = (
    Rule(needs=(f"{_ATTENTION}.num_kv_heads", f"{_ATTENTION}.num_heads"), check=_divides),
    Rule(needs=(f"{_EXPERTS}.top_k", f"{_EXPERTS}.num_experts"), check=_at_most),
    Rule(needs=(f"{_EXPERTS}.num_dense_layers", f"{_SHAPE}.num_layers"), check=_at_most),
    Rule(needs=("rollout.max_new_tokens", "data.max_prompt_tokens", f"{_SHAPE}.max_positions"), check=_positions),
    Rule(needs=(_TENSOR, f"{_SHAPE}.vocab_size"), check=_divides),
    Rule(needs=(_TENSOR, f"{_ATTENTION}.num_heads"), check=_divides),
    Rule(needs=(_TENSOR, f"{_ATTENTION}.num_kv_heads"), check=_divides),
    Rule(needs=(_TENSOR, f"{_SHAPE}.ffn_size"), check=_divides),
    Rule(needs=(_PIPELINE, f"{_SHAPE}.num_layers"), check=_divides),
    Rule(needs=(_EXPERT, f"{_EXPERTS}.num_experts"), check=_divides),
    Rule(needs=(_EXPERT_TENSOR, f"{_EXPERTS}.ffn_size"), check=_divides),
    Rule(needs=(_RANKS, _EXPERT, _EXPERT_TENSOR, _PIPELINE), check=_every_expert_once),
    Rule(needs=("trainer.sequence_parallel", _TENSOR, f"{_EXPERTS}.num_experts"), check=_sequence_with_experts),
    Rule(
        needs=(
            "draft.weight_group",
            "draft.source",
            f"{_SHAPE}.hidden_size",
            f"{_SHAPE}.ffn_size",
            f"{_ATTENTION}.num_heads",
            f"{_ATTENTION}.head_size",
        ),
        check=_groups_of_inputs,
    ),
    Rule(
        needs=("algorithm.batch_size", "algorithm.minibatches", _RANKS, _TENSOR, _PIPELINE),
        check=_response_for_every_replica,
    ),
    Rule(needs=(f"{_ENGINE}.data_parallel", f"{_ENGINE}.tensor_parallel"), check=_divides),
    Rule(needs=(f"{_ENGINE}.expert_parallel", f"{_ENGINE}.tensor_parallel"), check=_divides),
    Rule(needs=(f"{_ENGINE}.expert_parallel", f"{_EXPERTS}.num_experts"), check=_divides),
    Rule(needs=(*_OF_AN_ATTENTION, f"{_ATTENTION}.num_heads"), check=_heads_of_an_attention),
    Rule(needs=(*_OF_AN_ATTENTION, f"{_ATTENTION}.num_kv_heads"), check=_kv_heads_of_an_attention),
)
