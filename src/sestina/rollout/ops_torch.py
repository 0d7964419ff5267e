"""The decoder's kernels in plain PyTorch: any device, any float type. Close to ops_native.py, not bit-equal to it.

Batch-invariance is not promised here: PyTorch picks reductions by shape.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sestina.models.shape import ModelShape
from sestina.rollout.noise_torch import exponentials
from sestina.rollout.ops import StepInputs
from sestina.rollout.pages import PAGE_TOKENS
from sestina.rollout.rope import cos_sin_table


class TorchOps:
    """Implements `Ops` with PyTorch operators."""

    def __init__(self, shape: ModelShape, *, max_positions: int, device: torch.device) -> None:
        self._eps = shape.norm_eps
        self._num_heads, self._num_kv_heads, self._head_size = shape.num_heads, shape.num_kv_heads, shape.head_size
        self._cos_sin = cos_sin_table(shape, max_positions).to(device)

    def rms_norm(self, x: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.rms_norm`; normalises in float32."""
        wide = x[:rows].float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._eps)
        out[:rows] = weight * (wide * scale).to(x.dtype)

    def add_rms_norm(self, delta: Tensor, residual: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.add_rms_norm`."""
        residual[:rows] += delta[:rows]
        self.rms_norm(residual, weight, out, rows)

    def silu_mul(self, gate_up: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.silu_mul`."""
        gate, up = gate_up[:rows].chunk(2, dim=-1)
        out[:rows] = F.silu(gate) * up

    def rope_store(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor) -> None:
        """See `Ops.rope_store`."""
        heads = qkv[: inputs.rows].view(inputs.rows, -1, self._head_size)
        rotated = heads[:, : self._num_heads + self._num_kv_heads]
        cos, sin = self._cos_sin[inputs.positions].to(qkv.dtype)[:, None].chunk(2, dim=-1)
        first, second = rotated.chunk(2, dim=-1)
        rotated.copy_(torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1))
        page, offset = inputs.kv_slots.long() // PAGE_TOKENS, inputs.kv_slots.long() % PAGE_TOKENS
        keys[page, :, :, offset] = heads[:, self._num_heads : self._num_heads + self._num_kv_heads]
        values[page, :, offset] = heads[:, self._num_heads + self._num_kv_heads :]

    def attend(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """See `Ops.attend`; sequences with one row go in one batch, those in prefill in another."""
        sequences, row_of, counts = torch.unique_consecutive(
            inputs.sequences[: inputs.rows], return_inverse=True, return_counts=True
        )
        for wanted in (counts == 1, counts > 1):
            chosen = wanted[row_of].nonzero()[:, 0]
            if len(chosen):
                self._attend(qkv, inputs, keys, values, out, chosen, sequences[wanted], counts[wanted])

    def _attend(
        self,
        qkv: Tensor,
        inputs: StepInputs,
        keys: Tensor,
        values: Tensor,
        out: Tensor,
        rows: Tensor,
        sequences: Tensor,
        counts: Tensor,
    ) -> None:
        """Attention of `rows`, which are `counts[i]` consecutive ones of each of the N `sequences`."""
        longest, num_pages = int(counts.max()), int(inputs.cells[rows].max()) // PAGE_TOKENS + 1
        lane = torch.arange(longest, device=rows.device)
        taken = lane[None] < counts[:, None]
        query = qkv.new_zeros(len(counts), longest, self._num_heads, self._head_size)
        query[taken] = qkv[rows, : self._num_heads * self._head_size].unflatten(-1, (self._num_heads, self._head_size))
        pages = inputs.block_tables[sequences.long(), :num_pages].long()
        key = keys[pages].permute(0, 2, 1, 4, 3).flatten(2, 3)
        value = values[pages].permute(0, 2, 1, 3, 4).flatten(2, 3)
        visible = torch.zeros(*taken.shape, key.shape[2], dtype=torch.bool, device=rows.device)
        visible[taken] = _visible(inputs, key.shape[2])[rows]
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key,
            value,
            attn_mask=visible[:, None],
            scale=1 / math.sqrt(self._head_size),
            enable_gqa=True,
        )
        out[rows] = mixed.transpose(1, 2)[taken].flatten(1)

    def move(self, source: Tensor, target: Tensor, keys: Tensor, values: Tensor) -> None:
        """See `Ops.move`; at once, since what is read has not been written by then."""
        page, offset = source.long() // PAGE_TOKENS, source.long() % PAGE_TOKENS
        new_page, new_offset = target.long() // PAGE_TOKENS, target.long() % PAGE_TOKENS
        keys[new_page, :, :, new_offset] = keys[page, :, :, offset]
        values[new_page, :, new_offset] = values[page, :, offset]

    def sample(self, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """See `Ops.sample`."""
        greedy = inputs.temperature == 0
        scale = torch.where(greedy, 1.0, inputs.temperature)[:, None]
        logprobs = torch.log_softmax(logits.float() / scale, dim=-1)
        arrival = exponentials(inputs.keys, inputs.sampled_positions, logits.shape[1]).log() - logprobs.double()
        tokens = torch.where(greedy, logits.argmax(-1), arrival.argmin(-1))
        return tokens.int(), logprobs.gather(-1, tokens[:, None])[:, 0]


def _visible(inputs: StepInputs, cells: int) -> Tensor:
    """Return [R, cells] bool: what each row sees of its sequence."""
    cell = torch.arange(cells, device=inputs.positions.device)
    if inputs.branch_offsets is None or inputs.branch_cells is None:
        return cell <= inputs.positions[: inputs.rows, None]
    seen = inputs.branch_offsets.diff().long()
    visible = cell <= (inputs.positions[: inputs.rows] - seen)[:, None]
    rows = torch.arange(inputs.rows, device=cell.device).repeat_interleave(seen)
    within = inputs.branch_cells < cells  # rows of longer sequences are asked about on their own
    visible[rows[within], inputs.branch_cells[within].long()] = True
    return visible
