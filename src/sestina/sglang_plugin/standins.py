"""Lets SGLang import on a machine without CUDA, where two of the libraries it imports exist in no form that loads.

sgl_kernel   has no build for the CPU on PyPI. SGLang imports it everywhere and, without AMX, calls none of it to decode
             plainly, two functions of it where drafts are verified, and two where its cache in host memory is used,
             which are here: any other name is found, and raises when it is called.
torchvision  is linked to CUDA there, and its import ends at two operators that text models never call: declared here.
"""

import ctypes
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor


class _Absent(ModuleType):
    """A module in which every name is a function that says it is missing."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(f"{self.__name__}.{name} was called; it has no CPU build")

        return missing


def assign_req_to_token_pool_cpu(
    requests: Tensor, table: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, width: int
) -> None:
    """Write the cache's `slots` to rows `requests` of `table` [.., width], from `starts` up to `ends` of each."""
    counts = (ends - starts).long()
    place = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    table.view(-1)[(requests.long() * width + starts).repeat_interleave(counts) + place] = slots.to(table.dtype)


def copy_all_layer_kv_cache_cpu(addresses: Tensor, row_bytes: Tensor, targets: Tensor, sources: Tensor) -> None:
    """Copy rows `sources` of the buffers at these addresses to rows `targets`, all at once."""
    num_rows = int(torch.cat([targets, sources, targets.new_zeros(1)]).max()) + 1
    for address, width in zip(addresses.tolist(), row_bytes.tolist(), strict=True):
        buffer = np.frombuffer((ctypes.c_byte * (num_rows * width)).from_address(address), np.int8)
        rows = buffer.reshape(num_rows, width)
        rows[targets.numpy()] = rows[sources.numpy()]


def load_layer(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy a layer's rows out of pages [pages, layers, page, ..] into slots [slots, ..]; keys, then values."""
    page, row = src_indices // page_size, src_indices % page_size
    for pages, slots in zip(src_ptrs, dst_ptrs, strict=True):
        slots[dst_indices] = pages[page, layer_id, row]


def store_layers(
    src_ptrs: Sequence[Tensor],
    dst_ptrs: Sequence[Tensor],
    src_indices: Tensor,
    dst_indices: Tensor,
    page_size: int,
) -> None:
    """Copy rows of all layers' slots, those of keys before those of values, into pages as in `load_layer`."""
    page, row = dst_indices // page_size, dst_indices % page_size
    num_layers = len(src_ptrs) // len(dst_ptrs)
    for place, slots in enumerate(src_ptrs):
        dst_ptrs[place // num_layers][page, place % num_layers, row] = slots[src_indices]


def install() -> None:
    """Put the stand-ins in place; call before anything of SGLang is imported."""
    for name in ("sgl_kernel", "sgl_kernel.speculative"):
        sys.modules[name] = _Absent(name)
    for function in (assign_req_to_token_pool_cpu, copy_all_layer_kv_cache_cpu):
        setattr(sys.modules["sgl_kernel"], function.__name__, function)
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
