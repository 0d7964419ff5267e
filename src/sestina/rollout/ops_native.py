"""The decoder's kernels on a CPU in float32, from the native extension: bit-equal in any batch (native/kernels.h)."""

import torch
from torch import Tensor

from sestina.models.shape import ModelShape
from sestina.rollout import _native
from sestina.rollout.ops import StepInputs
from sestina.rollout.rope import cos_sin_table


class NativeOps:
    """Implements `Ops` for contiguous float32 CPU buffers."""

    def __init__(self, shape: ModelShape, *, max_positions: int) -> None:
        self._eps = shape.norm_eps
        self._heads = (shape.num_heads, shape.num_kv_heads, shape.head_size)
        self._cos_sin = cos_sin_table(shape, max_positions)

    def rms_norm(self, x: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.rms_norm`."""
        _native.rms_norm(x.data_ptr(), weight.data_ptr(), self._eps, rows, x.shape[1], out.data_ptr())

    def add_rms_norm(self, delta: Tensor, residual: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.add_rms_norm`."""
        width = residual.shape[1]
        _native.add_rms_norm(
            delta.data_ptr(), residual.data_ptr(), weight.data_ptr(), self._eps, rows, width, out.data_ptr()
        )

    def silu_mul(self, gate_up: Tensor, out: Tensor, rows: int) -> None:
        """See `Ops.silu_mul`."""
        _native.silu_mul(gate_up.data_ptr(), rows, out.shape[1], out.data_ptr())

    def rope_store(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor) -> None:
        """See `Ops.rope_store`."""
        _native.rope_store(
            qkv.data_ptr(),
            self._cos_sin.data_ptr(),
            inputs.positions.data_ptr(),
            inputs.kv_slots.data_ptr(),
            inputs.rows,
            *self._heads,
            keys.data_ptr(),
            values.data_ptr(),
        )

    def attend(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """See `Ops.attend`."""
        _native.paged_attention(
            qkv.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            inputs.block_tables.data_ptr(),
            inputs.block_tables.shape[1],
            inputs.sequences.data_ptr(),
            inputs.positions.data_ptr(),
            0 if inputs.branch_offsets is None else inputs.branch_offsets.data_ptr(),
            0 if inputs.branch_cells is None else inputs.branch_cells.data_ptr(),
            inputs.rows,
            *self._heads,
            out.data_ptr(),
        )

    def move(self, source: Tensor, target: Tensor, keys: Tensor, values: Tensor) -> None:
        """See `Ops.move`."""
        _native.move_tokens(
            source.data_ptr(), target.data_ptr(), len(source), *self._heads, keys.data_ptr(), values.data_ptr()
        )

    def sample(self, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """See `Ops.sample`."""
        tokens = torch.empty(inputs.draws, dtype=torch.int32)
        logprobs = torch.empty(inputs.draws)
        _native.sample(
            logits.data_ptr(),
            inputs.temperature.data_ptr(),
            inputs.keys.data_ptr(),
            inputs.sampled_positions.data_ptr(),
            inputs.draws,
            logits.shape[1],
            tokens.data_ptr(),
            logprobs.data_ptr(),
        )
        return tokens, logprobs
