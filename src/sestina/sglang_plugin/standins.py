"""Lets SGLang import on a machine without CUDA, where two of the libraries it imports exist in no form that loads.

sgl_kernel   has no build for the CPU on PyPI. SGLang imports it everywhere and, without AMX, calls none of it to decode
             plainly: any name is found, and raises when it is called.
torchvision  is linked to CUDA there, and its import ends at two operators that text models never call: declared here.
"""

import sys
from types import ModuleType
from typing import NoReturn

import torch


class _Absent(ModuleType):
    """A module in which every name is a function that says it is missing."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(f"{self.__name__}.{name} was called; it has no CPU build")

        return missing


def install() -> None:
    """Put the stand-ins in place; call before anything of SGLang is imported."""
    for name in ("sgl_kernel", "sgl_kernel.speculative"):
        sys.modules[name] = _Absent(name)
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
