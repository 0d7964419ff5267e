"""What Megatron's local layer spec lacks: attention over packed sequences, RMSNorm with sequence parallelism."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from torch import Tensor


class PackedAttention(MegatronModule):
    """Causal attention within each sequence of a pack; takes the call of TEDotProductAttention.

    One call of torch's kernel per sequence: time and memory follow the sum of squared lengths, not its square.
    """

    def __init__(
        self,
        config: TransformerConfig,
        layer_number: int,
        attn_mask_type: object,
        attention_type: str,
        softmax_scale: float | None = None,
        **_: Any,  # noqa: ANN401 - Megatron passes what other backends need
    ) -> None:
        super().__init__(config=config)
        self._scale = softmax_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        packed_seq_params: PackedSeqParams,
        **_: Any,  # noqa: ANN401
    ) -> Tensor:
        """Attend; query is [t, heads, d], key and value are [t, kv heads, d]; returns [t, heads * d]."""
        grouped = query.size(1) != key.size(1)
        bounds = packed_seq_params.cu_seqlens_q.tolist()
        sizes = [end - start for start, end in pairwise(bounds)]
        parts = zip(*(tensor.transpose(0, 1).split(sizes, dim=1) for tensor in (query, key, value)), strict=True)
        outputs = [
            F.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=True, scale=self._scale, enable_gqa=grouped
            )
            for q, k, v in parts
        ]
        return torch.cat(outputs, dim=2)[0].transpose(0, 1).flatten(1)


class RMSNorm(torch.nn.RMSNorm):
    """RMSNorm with Megatron's signature; its gradient is summed over tensor ranks under sequence parallelism."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-6, **_: Any) -> None:  # noqa: ANN401
        super().__init__(hidden_size, eps=eps)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the state as Megatron's checkpoints want it."""
        state = self.state_dict(prefix="", keep_vars=True)
        return make_sharded_tensors_for_checkpoint(state, prefix, {}, sharded_offsets)


def cpu_spec(config: TransformerConfig) -> TransformerBlockSubmodules:
    """Return Megatron's local layer spec with the parts above."""
    layer: Any = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = RMSNorm
    layer.submodules.self_attention.submodules.core_attention = PackedAttention
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=RMSNorm)  # type: ignore[arg-type]
