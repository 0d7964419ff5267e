"""What the forward pass asks of a device: the Protocol behind ops_native.py and ops_torch.py.

Symbols: R rows (tokens) of the step, S rows that draw a token, H hidden size, F feed-forward size, V vocabulary, Q and
K query and key-value heads of size D. Buffers may have more rows than `rows`; the rest is neither read nor written.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sestina.rollout.slots import SlotTable
from sestina.rollout.step import Step


@dataclass(slots=True, kw_only=True)
class StepInputs:
    """The rows of one step on the engine's device."""

    tokens: Tensor
    """[R] int32"""
    positions: Tensor
    """[R] int32"""
    cells: Tensor
    """[R] int32: index in the sequence where the row's keys and values are kept (drafts.py)"""
    kv_slots: Tensor
    """[R] int32: page * PAGE_TOKENS + offset, where the row's keys and values go"""
    sequences: Tensor
    """[R] int32: row of block_tables"""
    block_tables: Tensor
    """[slots, pages] int32"""
    branch_offsets: Tensor | None
    """[R + 1] int32 into `branch_cells`; None without draft trees"""
    branch_cells: Tensor | None
    """[cells] int32: what a row sees in place of the same number of cells before and at its position (drafts.py)"""
    sampled: Tensor | None
    """[S] int64: rows that draw a token; None when all do"""
    sampled_positions: Tensor
    """[S] int32"""
    keys: Tensor
    """[S] int64 bit pattern of the noise key"""
    temperature: Tensor
    """[S] float32"""

    @property
    def rows(self) -> int:
        """R."""
        return len(self.tokens)

    @property
    def draws(self) -> int:
        """S."""
        return len(self.keys)


class Ops(Protocol):
    """Kernels of the decoder on one device."""

    def rms_norm(self, x: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """out[R, H] = x / rms(x) * weight."""
        ...

    def add_rms_norm(self, delta: Tensor, residual: Tensor, weight: Tensor, out: Tensor, rows: int) -> None:
        """residual[R, H] += delta, then as `rms_norm`."""
        ...

    def silu_mul(self, gate_up: Tensor, out: Tensor, rows: int) -> None:
        """out[R, F] = silu(gate) * up of gate_up[R, 2F]."""
        ...

    def rope_store(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor) -> None:
        """Rotate queries and keys of qkv[R, (Q + 2K) D] in place; write keys and values to the rows' cache slots."""
        ...

    def attend(self, qkv: Tensor, inputs: StepInputs, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """out[R, Q D]: each row attends to its own sequence up to its position, or to its own branch of it."""
        ...

    def move(self, source: Tensor, target: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copy keys and values from cache slots `source` [M] int32 to `target` [M], one after the other.

        A target is never a later source.
        """
        ...

    def sample(self, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Return tokens [S] int32 and their logprobs [S] float32 (core.noise has the definition)."""
        ...


def step_inputs(step: Step, table: SlotTable, device: torch.device) -> StepInputs:
    """Gather what the kernels need of a planned step."""
    drawing = step.drawing
    branches = step.branches

    def put(array: "npt.NDArray[np.generic]") -> Tensor:  # unquoted it is built anew at every step
        return torch.from_numpy(array).to(device)

    return StepInputs(
        tokens=put(table.tokens[step.slots, step.cells]),
        positions=put(step.positions),
        cells=put(step.cells),
        kv_slots=put(table.cache_slots(step.slots, step.cells)),
        sequences=put(step.slots),
        block_tables=put(table.block_tables),
        branch_offsets=None if branches is None else put(branches.offsets),
        branch_cells=None if branches is None else put(branches.cells),
        sampled=None if step.sampled is None else put(step.sampled.astype(np.int64)),
        sampled_positions=put(step.positions if step.sampled is None else step.positions[step.sampled]),
        keys=put(table.keys[drawing].view(np.int64)),
        temperature=put(table.temperature[drawing]),
    )
