"""The Qwen2 forward pass over the rows of one step, on fused weights and preallocated buffers.

Matrix products are PyTorch's, everything between them is `Ops`. Products never see fewer than MIN_GEMM_ROWS rows: with
1 to 3 the BLAS takes another path, whose sums round differently (docs/decisions/0003).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sestina.kvpool.entry import ByteArray, Cells
from sestina.models.shape import ModelShape
from sestina.rollout.fused import Allocator, Buffers, Common, DenseLayer, Layer, Weights
from sestina.rollout.ops import Ops, StepInputs
from sestina.rollout.pages import PAGE_TOKENS

MIN_GEMM_ROWS = 4


class Qwen2:
    """Weights, KV cache and activations of one decoder on one device.

    Of them `common` holds the weights and activations, if it is given.
    """

    def __init__(
        self,
        shape: ModelShape,
        ops: Ops,
        *,
        device: torch.device,
        dtype: torch.dtype,
        num_pages: int,
        max_step_tokens: int,
        common: Common | None = None,
    ) -> None:
        self.shape = shape
        self._ops = ops
        self._common = common
        empty = Allocator(device, dtype)
        self._weights = Weights(shape, empty)
        cache = empty(2, shape.num_layers, num_pages, shape.num_kv_heads, shape.head_size * PAGE_TOKENS)
        self._keys = cache[0].unflatten(-1, (shape.head_size, PAGE_TOKENS)).unbind()
        self._values = cache[1].unflatten(-1, (PAGE_TOKENS, shape.head_size)).unbind()
        self._pages = cache.flatten(0, 1).flatten(2).view(torch.uint8).transpose(0, 1)
        """[pages, 2 * L, bytes]: for every page the keys of all layers, then the values."""
        self.cells = Cells(self._pages.numpy()) if self._pages.is_cpu else None
        """The cache's pages, where the CPU has them; None on a GPU."""
        rows = max(max_step_tokens, MIN_GEMM_ROWS)
        self._all = Buffers.of(rows, shape, empty) if common is None else common.buffers(rows, shape, empty)
        self._views: dict[int, Buffers] = {}

    @property
    def layers(self) -> Sequence[DenseLayer]:
        """With the weights that were loaded last."""
        return self._weights.layers

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy a checkpoint's tensors, already checked against the shape, into the fused weights."""
        if self._common is not None:
            self._weights = self._common.weights(tensors, self._weights)
        self._weights.copy(tensors)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, drafting: Sequence[Layer] | None = None) -> Tensor:
        """Return logits [S, V] of the rows that draw; writes the KV of every row.

        `drafting` are layers to take in place of the model's. Nobody holds a draft's rows against those of another
        batch, so few rows stay few.
        """
        ops, rows = self._ops, inputs.rows
        layers, least_rows = (self.layers, MIN_GEMM_ROWS) if drafting is None else (drafting, 1)
        buffers = self._buffers(max(rows, least_rows))
        torch.index_select(self._weights.embedding, 0, inputs.tokens, out=buffers.residual[:rows])
        ops.rms_norm(buffers.residual, layers[0].input_norm, buffers.hidden, rows)
        for index, layer in enumerate(layers):
            self._attention(layer, inputs, buffers, index)
            ops.add_rms_norm(buffers.delta, buffers.residual, layer.ffn_norm, buffers.hidden, rows)
            layer.gate_up(buffers.hidden, buffers.gate_up)
            ops.silu_mul(buffers.gate_up, buffers.gated, rows)
            layer.down(buffers.gated, buffers.delta)
            following = layers[index + 1].input_norm if index + 1 < len(layers) else self._weights.norm
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
        if self.cells is not None:
            return self.cells.content[pages].reshape(len(pages), -1)  # one copy, in a third of torch's time
        index = torch.tensor(pages, device=self._pages.device)
        return self._pages.index_select(0, index).flatten(1).cpu().numpy()

    def write_pages(self, pages: list[int], content: ByteArray) -> None:
        """Put what `read_pages` returned into these pages."""
        parts = content.reshape(len(pages), *self._pages.shape[1:])
        if self.cells is not None:
            self.cells.content[pages] = parts
        else:
            index = torch.tensor(pages, device=self._pages.device)
            self._pages.index_copy_(0, index, torch.from_numpy(parts).to(index.device))

    def _attention(self, layer: Layer, inputs: StepInputs, buffers: Buffers, index: int) -> None:
        keys, values = self._keys[index], self._values[index]
        layer.qkv(buffers.hidden, buffers.qkv)
        self._ops.rope_store(buffers.qkv, inputs, keys, values)
        self._ops.attend(buffers.qkv, inputs, keys, values, buffers.mixed)
        layer.output(buffers.mixed, buffers.delta)

    def _logits(self, hidden: Tensor, sampled: Tensor | None, least_rows: int) -> Tensor:
        chosen = hidden if sampled is None else hidden[sampled]
        if len(chosen) < least_rows:
            chosen = torch.cat([chosen, chosen.new_zeros(least_rows - len(chosen), chosen.shape[1])])
        return torch.mm(chosen, self._weights.head.t())

    def _buffers(self, rows: int) -> Buffers:
        if rows not in self._views:
            self._views[rows] = self._all.first(rows)
        return self._views[rows]
