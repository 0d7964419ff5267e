"""What the embedded engine and a drafter that runs a model want of each other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from sestina.rollout.drafts import IntArray
from sestina.rollout.ops import Ops, StepInputs
from sestina.rollout.qwen2 import Qwen2
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.speculator import Speculator
from sestina.rollout.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the drafter takes part in: its engine's model, KV cache and pages."""

    model: Qwen2
    ops: Ops
    slots: SlotTable
    device: torch.device
    stop_token: int
    num_slots: int
    reserve: Callable[[IntArray], IntArray]
    """Drafts of the decoding requests, cut to the rows and pages that there are; those pages are then allocated."""


class ModelSpeculator(Speculator, Protocol):
    """Drafts by a model, which has a distribution of its own."""

    @property
    def kernel(self) -> str:
        """For people: how it multiplies."""
        ...

    def draw(self, logits: Tensor, inputs: StepInputs, step: Step) -> tuple[Tensor, Tensor]:
        """Draw as `Ops.sample` does, in a step that may hold its drafts: what equals them is accepted."""
        ...


BuildSpeculator: TypeAlias = Callable[[Host], ModelSpeculator]
