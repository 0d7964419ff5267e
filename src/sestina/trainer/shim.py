"""Lets Megatron-Core run where there is no CUDA: its literal "cuda" devices become the CPU.

Megatron writes device="cuda" in its optimizer, schedules and gradient clipping; no setting avoids that. Only backend.py
may import this module, and only in a process without CUDA.
"""

import torch
from megatron.core.tensor_parallel import random as megatron_random
from torch.overrides import TorchFunctionMode

_type_of = torch.Tensor.type


class CudaAsCpu(TorchFunctionMode):
    """Redirects devices, `.cuda()` and type names; holds for the thread that enters it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204 - torch's
        kwargs = kwargs or {}
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs = {**kwargs, "device": "cpu"}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is _type_of and len(args) == 1 and not kwargs:
            # The optimizers compare type names with 'torch.cuda.FloatTensor'.
            return _type_of(args[0]).replace("torch.", "torch.cuda.", 1)
        return func(*args, **kwargs)


def install() -> None:
    """Redirect for the rest of this thread's life; call once, before Megatron builds anything."""
    assert not torch.cuda.is_available(), "the CPU shim would hide this machine's GPUs"
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment]
    torch.cuda.synchronize = lambda *_, **__: None
    megatron_random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    megatron_random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    CudaAsCpu().__enter__()
