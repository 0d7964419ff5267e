"""Attends for a whole batch at once on the CPU: SGLang's own backend there loops over requests."""

# pyright: reportMissingImports=false

from dataclasses import dataclass, replace

import numpy as np
import torch
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.mem_cache.allocation import get_last_loc_torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.server_args import add_attention_backend_choices
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sestina.rollout.drafts import Branches

NAME = "sestina_cpu"


@dataclass(frozen=True, slots=True)
class Part:
    """Some N requests of a batch that are computed together: L rows each at most, K known tokens at most."""

    requests: Tensor
    """[N] their places in the batch"""
    rows: Tensor
    """[rows of the part] their place among the batch's rows"""
    lane: Tensor
    """[N, L] bool: which places of a padded [N, L] block these rows take"""
    slots: Tensor
    """[N, K] the cache's slots of the known tokens"""
    visible: Tensor
    """[N, 1, L, K] bool: what each row may see"""


class BatchedAttention(TorchNativeAttnBackend):
    """Requests with one new token go together, and those with more, padded to the longest."""

    def init_forward_metadata(self, forward_batch) -> None:
        """Lay the parts of the batch out, once for all layers."""
        super().init_forward_metadata(forward_batch)
        known, branches = forward_batch.seq_lens.long(), None
        if forward_batch.forward_mode.is_target_verify():
            new, branches = forward_batch.spec_info.rows, forward_batch.spec_info.branches
            known = known + new
        elif forward_batch.forward_mode.is_decode():
            new = torch.ones_like(known)
        else:
            new = forward_batch.extend_seq_lens.long()
        slots = self.req_to_token_pool.req_to_token[forward_batch.req_pool_indices, : int(known.max())]
        first = new.cumsum(0) - new
        chosen = [(new == 1).nonzero()[:, 0], (new > 1).nonzero()[:, 0]]
        parts = [_part(part, known, new, first, slots) for part in chosen if len(part)]
        self._parts = parts if branches is None else [_branched(part, known - new, branches) for part in parts]

    def forward_decode(self, q, k, v, layer, forward_batch, save_kv_cache: bool = True) -> Tensor:
        """Attend from one new token per request: [rows, heads x head size]."""
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache: bool = True) -> Tensor:
        """Attend from every request's new tokens: [rows, heads x head size]."""
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache)

    def _attend(self, q, k, v, layer, forward_batch, save_kv_cache) -> Tensor:
        pool = self.token_to_kv_pool
        if save_kv_cache:
            pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        keys, values = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
        queries = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = torch.empty(len(queries), layer.tp_q_head_num * layer.v_head_dim, dtype=q.dtype)
        for part in self._parts:
            padded = queries.new_zeros(*part.lane.shape, *queries.shape[1:])
            padded[part.lane] = queries[part.rows]
            mixed = scaled_dot_product_attention(
                padded.transpose(1, 2),
                keys[part.slots].transpose(1, 2),
                values[part.slots].transpose(1, 2),
                attn_mask=part.visible,
                scale=layer.scaling,
                enable_gqa=layer.tp_q_head_num != layer.tp_k_head_num,
            )
            out[part.rows] = mixed.transpose(1, 2)[part.lane].flatten(1)
        return out


def _part(chosen: Tensor, known: Tensor, new: Tensor, first: Tensor, slots: Tensor) -> Part:
    """Lay out the requests `chosen`: `known` tokens each, the last `new` of them rows from `first` on."""
    known, new, first = known[chosen], new[chosen], first[chosen]
    place = torch.arange(int(new.max()))
    lane = place < new[:, None]
    position = (known - new)[:, None] + place
    return Part(
        requests=chosen,
        rows=(first[:, None] + place)[lane],
        lane=lane,
        slots=slots[chosen, : int(known.max())].long(),
        visible=(torch.arange(int(known.max())) <= position[:, :, None])[:, None],
    )


def _branched(part: Part, root: Tensor, branches: Branches) -> Part:
    """Let rows of trees see, behind the `root` [requests of the batch] they follow, their own branch alone."""
    depth = torch.from_numpy(np.diff(branches.offsets)).long()
    lane, place = part.lane.nonzero(as_tuple=True)
    visible = torch.arange(part.visible.shape[-1]) <= root[part.requests][:, None, None].expand(*part.lane.shape, 1)
    seen = depth[part.rows]
    first = torch.from_numpy(branches.offsets).long()[part.rows]
    entry = (
        first.repeat_interleave(seen) + torch.arange(int(seen.sum())) - (seen.cumsum(0) - seen).repeat_interleave(seen)
    )
    cells = torch.from_numpy(branches.cells).long()[entry]
    visible[lane.repeat_interleave(seen), place.repeat_interleave(seen), cells] = True
    return replace(part, visible=visible[:, None])


def register() -> None:
    """Let `--attention-backend` name it."""
    add_attention_backend_choices([NAME])
    register_attention_backend(NAME)(BatchedAttention)
    # SGLang goes by the backend's name here, and takes any other for one with Triton's kernels.
    HookRegistry.register("sglang.srt.mem_cache.allocation.get_last_loc", get_last_loc_torch, HookType.REPLACE)
