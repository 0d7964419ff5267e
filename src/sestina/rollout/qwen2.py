"""The Qwen2 forward pass over the rows of one step, on fused weights and preallocated buffers.

Matrix products are PyTorch's, everything between them is `Ops`. Products never see fewer than MIN_GEMM_ROWS rows: with
1 to 3 the BLAS takes another path, whose sums round differently (docs/decisions/0003).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sestina.core.errors import EngineError
from sestina.kvpool.entry import ByteArray
from sestina.models.shape import ModelShape
from sestina.rollout.ops import Ops, StepInputs
from sestina.rollout.pages import PAGE_TOKENS
from sestina.rollout.products import Dense, Product

MIN_GEMM_ROWS = 4


@dataclass(frozen=True, slots=True)
class Layer:
    """Norms, and products by fused weights."""

    input_norm: Tensor
    qkv: Product
    output: Product
    ffn_norm: Tensor
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class DenseLayer(Layer):
    """A layer of the model itself, whose weights are loaded."""

    qkv: Dense
    output: Dense
    gate_up: Dense
    down: Dense

    @property
    def products(self) -> tuple[Dense, ...]:
        """All that a drafter may have in another form."""
        return self.qkv, self.output, self.gate_up, self.down


@dataclass(slots=True)
class _Buffers:
    """Activations of one step; views of the largest step's."""

    residual: Tensor
    hidden: Tensor
    delta: Tensor
    qkv: Tensor
    mixed: Tensor
    gate_up: Tensor
    gated: Tensor


class Qwen2:
    """Weights, KV cache and activations of one decoder on one device."""

    def __init__(
        self,
        shape: ModelShape,
        ops: Ops,
        *,
        device: torch.device,
        dtype: torch.dtype,
        num_pages: int,
        max_step_tokens: int,
    ) -> None:
        self.shape = shape
        self._ops = ops
        empty = _Allocator(device, dtype)
        hidden, query = shape.hidden_size, shape.num_heads * shape.head_size
        self._embedding = empty(shape.vocab_size, hidden)
        self.layers = [
            DenseLayer(
                input_norm=empty(hidden),
                qkv=Dense(empty(shape.qkv_size, hidden).t(), empty(shape.qkv_size)),
                output=Dense(empty(hidden, query).t()),
                ffn_norm=empty(hidden),
                gate_up=Dense(empty(2 * shape.ffn_size, hidden).t()),
                down=Dense(empty(hidden, shape.ffn_size).t()),
            )
            for _ in range(shape.num_layers)
        ]
        self._norm = empty(hidden)
        self._head = self._embedding if shape.tied else empty(shape.vocab_size, hidden)
        cache = empty(2, shape.num_layers, num_pages, shape.num_kv_heads, shape.head_size * PAGE_TOKENS)
        self._keys = cache[0].unflatten(-1, (shape.head_size, PAGE_TOKENS)).unbind()
        self._values = cache[1].unflatten(-1, (PAGE_TOKENS, shape.head_size)).unbind()
        self._pages = cache.flatten(0, 1).flatten(2).view(torch.uint8).transpose(0, 1)
        """[pages, 2 * L, bytes]: for every page the keys of all layers, then the values."""
        rows = max(max_step_tokens, MIN_GEMM_ROWS)
        widths = (hidden, hidden, hidden, shape.qkv_size, query, 2 * shape.ffn_size, shape.ffn_size)
        self._all = _Buffers(*(empty(rows, width) for width in widths))
        self._views: dict[int, _Buffers] = {}

    @torch.inference_mode()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy a checkpoint's tensors (already checked against the shape) into the fused weights."""
        self._embedding.copy_(tensors["model.embed_tokens.weight"])
        for index, layer in enumerate(self.layers):
            prefix = f"model.layers.{index}."

            def fused(part: str, names: tuple[str, ...], at: str = prefix) -> Tensor:
                return torch.cat([tensors[at + name + part] for name in names])

            projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
            layer.input_norm.copy_(tensors[prefix + "input_layernorm.weight"])
            layer.qkv.weight.copy_(fused(".weight", projections).t())
            assert layer.qkv.bias is not None, "queries, keys and values have one"
            layer.qkv.bias.copy_(fused(".bias", projections))
            layer.output.weight.copy_(tensors[prefix + "self_attn.o_proj.weight"].t())
            layer.ffn_norm.copy_(tensors[prefix + "post_attention_layernorm.weight"])
            layer.gate_up.weight.copy_(fused(".weight", ("mlp.gate_proj", "mlp.up_proj")).t())
            layer.down.weight.copy_(tensors[prefix + "mlp.down_proj.weight"].t())
        self._norm.copy_(tensors["model.norm.weight"])
        if not self.shape.tied:
            self._head.copy_(tensors["lm_head.weight"])

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, drafting: Sequence[Layer] | None = None) -> Tensor:
        """Return logits [S, V] of the rows that draw; writes the KV of every row.

        `drafting` are layers to take in place of the model's. Nobody holds a draft's rows against those of another
        batch, so few rows stay few.
        """
        ops, rows = self._ops, inputs.rows
        layers, least_rows = (self.layers, MIN_GEMM_ROWS) if drafting is None else (drafting, 1)
        buffers = self._buffers(max(rows, least_rows))
        torch.index_select(self._embedding, 0, inputs.tokens, out=buffers.residual[:rows])
        ops.rms_norm(buffers.residual, layers[0].input_norm, buffers.hidden, rows)
        for index, layer in enumerate(layers):
            self._attention(layer, inputs, buffers, index)
            ops.add_rms_norm(buffers.delta, buffers.residual, layer.ffn_norm, buffers.hidden, rows)
            layer.gate_up(buffers.hidden, buffers.gate_up)
            ops.silu_mul(buffers.gate_up, buffers.gated, rows)
            layer.down(buffers.gated, buffers.delta)
            following = layers[index + 1].input_norm if index + 1 < len(layers) else self._norm
            ops.add_rms_norm(buffers.delta, buffers.residual, following, buffers.hidden, rows)
        return self._logits(buffers.hidden, inputs.sampled, least_rows)[: inputs.draws]

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy the KV of cache slots `source` [M] to `target` [M]; a target is never a later source."""
        for keys, values in zip(self._keys, self._values, strict=True):
            self._ops.move(source, target, keys, values)

    @property
    def page_bytes(self) -> int:
        """Keys and values of one page, all layers together."""
        return self._pages[0].nbytes

    def read_pages(self, pages: list[int]) -> ByteArray:
        """Return a copy of these pages, in the CPU's memory: [pages, page bytes]."""
        if self._pages.is_cpu:
            return self._pages.numpy()[pages].reshape(len(pages), -1)  # one copy, in a third of torch's time
        index = torch.tensor(pages, device=self._pages.device)
        return self._pages.index_select(0, index).flatten(1).cpu().numpy()

    def write_pages(self, pages: list[int], content: ByteArray) -> None:
        """Put what `read_pages` returned into these pages."""
        parts = content.reshape(len(pages), *self._pages.shape[1:])
        if self._pages.is_cpu:
            self._pages.numpy()[pages] = parts
        else:
            index = torch.tensor(pages, device=self._pages.device)
            self._pages.index_copy_(0, index, torch.from_numpy(parts).to(index.device))

    def _attention(self, layer: Layer, inputs: StepInputs, buffers: _Buffers, index: int) -> None:
        keys, values = self._keys[index], self._values[index]
        layer.qkv(buffers.hidden, buffers.qkv)
        self._ops.rope_store(buffers.qkv, inputs, keys, values)
        self._ops.attend(buffers.qkv, inputs, keys, values, buffers.mixed)
        layer.output(buffers.mixed, buffers.delta)

    def _logits(self, hidden: Tensor, sampled: Tensor | None, least_rows: int) -> Tensor:
        chosen = hidden if sampled is None else hidden[sampled]
        if len(chosen) < least_rows:
            chosen = torch.cat([chosen, chosen.new_zeros(least_rows - len(chosen), chosen.shape[1])])
        return torch.mm(chosen, self._head.t())

    def _buffers(self, rows: int) -> _Buffers:
        if rows not in self._views:
            a = self._all
            parts = (a.residual, a.hidden, a.delta, a.qkv, a.mixed, a.gate_up, a.gated)
            self._views[rows] = _Buffers(*(part[:rows] for part in parts))
        return self._views[rows]


class _Allocator:
    """Makes zeroed tensors of one device and type, turning exhausted memory into an EngineError."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    def __call__(self, *size: int) -> Tensor:
        try:
            return torch.zeros(size, device=self._device, dtype=self._dtype)
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"no memory for a tensor of {size} on {self._device}: {error}") from error
