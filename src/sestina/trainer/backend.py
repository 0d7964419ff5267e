"""Everything that differs between a CPU trainer and a CUDA trainer, in one object."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import torch
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer.transformer_config import TransformerConfig

from sestina.core.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Device, process groups, layer spec, fusions and RNG of one kind of trainer."""

    device: torch.device
    process_groups: Literal["gloo", "nccl"]
    layer_spec: Callable[[TransformerConfig], Any]
    fusions: dict[str, Any]
    """Fields of TransformerConfig."""
    seed: Callable[[int], None]
    """Prepare Megatron's RNG tracker; called after its process groups exist."""


def open_backend(device: Literal["cpu", "cuda"], local_rank: int) -> Backend:
    """Prepare this process for a device; call once. Raises UserError when there is no such device."""
    match device:
        case "cpu":
            return _cpu()
        case "cuda":
            return _cuda(local_rank)
        case _:
            assert_never(device)


def _cpu() -> Backend:
    # Imported here: the shim must never be loaded in a process that trains on CUDA.
    from sestina.trainer import shim  # noqa: PLC0415
    from sestina.trainer.gloo import share_device  # noqa: PLC0415
    from sestina.trainer.layers import cpu_spec  # noqa: PLC0415

    shim.install()
    share_device()
    torch.set_num_threads(1)
    names = ("gradient_accumulation_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "bias_activation_fusion")
    return Backend(
        device=torch.device("cpu"),
        process_groups="gloo",
        layer_spec=cpu_spec,
        fusions=dict.fromkeys((*names, "apply_rope_fusion", "persist_layer_norm"), False),
        # Without dropout nothing draws from the tracker; the CUDA one cannot be built here.
        seed=lambda _: megatron_random.initialize_rng_tracker(inference_rng_tracker=True),
    )


def _cuda(local_rank: int) -> Backend:
    if not torch.cuda.is_available():
        raise UserError("trainer.device: 'cuda' was asked for, torch finds no CUDA device on this host")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return Backend(
        device=device,
        process_groups="nccl",
        layer_spec=lambda _: get_gpt_layer_with_transformer_engine_spec(),
        fusions={"gradient_accumulation_fusion": False, "persist_layer_norm": True},
        seed=megatron_random.model_parallel_cuda_manual_seed,
    )
