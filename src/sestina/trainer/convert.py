"""Hugging Face Qwen2 tensors to and from Megatron parameters, over any tensor and pipeline layout, bit for bit.

Each Megatron parameter is a `Part`: where it lies in the model, which Hugging Face tensors it holds, and along which
dimension it is sharded. Export walks the parts of the whole model in order, so it streams: no rank ever holds more than
one part in full.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.models.gpt import GPTModel
from torch import Tensor

from sestina.models.shape import ModelShape

Kind: TypeAlias = Literal["plain", "qkv", "gate_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One parameter of the whole model."""

    megatron: tuple[str, ...]
    """Its names: Megatron's local layers, then Transformer Engine's if that differs; without the layer prefix."""
    layer: int | None
    hf: tuple[str, ...]
    """Tensors it holds, in order."""
    kind: Kind
    sharded: int | None
    """Dimension split over tensor ranks; None when each holds all of it."""


def parts_of(shape: ModelShape) -> list[Part]:
    """Return the parts of a model in the order of its checkpoints' tensors."""
    parts = [_outer("embedding.word_embeddings.weight", "model.embed_tokens.weight", 0)]
    for layer in range(shape.num_layers):
        parts += _layer_parts(layer)
    parts.append(_outer("decoder.final_layernorm.weight", "model.norm.weight", None))
    if not shape.tied:
        parts.append(_outer("output_layer.weight", "lm_head.weight", 0))
    return parts


def load(model: GPTModel, shape: ModelShape, tensors: Mapping[str, Tensor]) -> None:
    """Overwrite this rank's parameters with its share of a checkpoint."""
    own = dict(model.named_parameters())
    size, rank = ps.get_tensor_model_parallel_world_size(), ps.get_tensor_model_parallel_rank()
    for part in parts_of(shape):
        found = _find(model, own, part)
        if found is None:
            continue
        found.data.copy_(_join(part, [tensors[name] for name in part.hf], shape, size)[rank])
    if shape.tied and "output_layer.weight" in own:
        own["output_layer.weight"].data.copy_(tensors["model.embed_tokens.weight"].chunk(size, 0)[rank])


@torch.no_grad()
def export(model: GPTModel, shape: ModelShape) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, whole tensor) on the first rank, in the order of `parts_of`; nothing on the others.

    Collective: every rank must exhaust it.
    """
    own = dict(model.named_parameters())
    for part in parts_of(shape):
        shards = _gather(_find(model, own, part), part)
        whole = _to_first_stage(part, shards, model, shape)
        if whole is not None and dist.get_rank() == 0:
            yield from zip(part.hf, _split(part, list(whole), shape), strict=True)


def exported_shapes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what `export` yields, in its order."""
    sizes = shape.tensors()
    return {name: sizes[name] for part in parts_of(shape) for name in part.hf}


def _outer(megatron: str, hf: str, sharded: int | None) -> Part:
    return Part(megatron=(megatron,), layer=None, hf=(hf,), kind="plain", sharded=sharded)


def _layer_parts(layer: int) -> list[Part]:
    def part(megatron: str, hf: str, sharded: int | None, *, kind: Kind = "plain", te: str = "") -> Part:
        return Part(
            megatron=(megatron, te) if te else (megatron,),
            layer=layer,
            hf=tuple(f"model.layers.{layer}.{name}" for name in hf.split()),
            kind=kind,
            sharded=sharded,
        )

    qkv, mlp = "self_attention.linear_qkv.", "mlp.linear_fc1."
    return [
        part("input_layernorm.weight", "input_layernorm.weight", None, te=qkv + "layer_norm_weight"),
        part(qkv + "weight", " ".join(f"self_attn.{x}_proj.weight" for x in "qkv"), 0, kind="qkv"),
        part(qkv + "bias", " ".join(f"self_attn.{x}_proj.bias" for x in "qkv"), 0, kind="qkv"),
        part("self_attention.linear_proj.weight", "self_attn.o_proj.weight", 1),
        part("pre_mlp_layernorm.weight", "post_attention_layernorm.weight", None, te=mlp + "layer_norm_weight"),
        part(mlp + "weight", "mlp.gate_proj.weight mlp.up_proj.weight", 0, kind="gate_up"),
        part("mlp.linear_fc2.weight", "mlp.down_proj.weight", 1),
    ]


def _find(model: GPTModel, own: dict[str, torch.nn.Parameter], part: Part) -> torch.nn.Parameter | None:
    """Return this rank's shard of a part; None when another pipeline stage holds it."""
    prefix = ""
    if part.layer is not None:
        layers: Any = model.decoder.layers
        first = layers[0].layer_number - 1
        prefix = f"decoder.layers.{part.layer - first}."
    return next((own[prefix + name] for name in part.megatron if prefix + name in own), None)


def _join(part: Part, tensors: list[Tensor], shape: ModelShape, num_shards: int) -> list[Tensor]:
    """Combine a part's tensors and cut them into shards."""
    if part.kind == "gate_up":
        gate, up = (tensor.chunk(num_shards, 0) for tensor in tensors)
        return [torch.cat(pair) for pair in zip(gate, up, strict=True)]
    whole = _interleave(tensors, shape) if part.kind == "qkv" else tensors[0]
    return [whole] * num_shards if part.sharded is None else list(whole.chunk(num_shards, part.sharded))


def _split(part: Part, shards: list[Tensor], shape: ModelShape) -> list[Tensor]:
    """Undo `_join`."""
    if part.kind == "gate_up":
        halves = [shard.chunk(2, 0) for shard in shards]
        return [torch.cat([half[i] for half in halves]) for i in range(2)]
    whole = shards[0] if part.sharded is None else torch.cat(shards, part.sharded)
    return _deinterleave(whole, shape) if part.kind == "qkv" else [whole]


def _interleave(qkv: list[Tensor], shape: ModelShape) -> Tensor:
    """Order rows by group of heads, as Megatron does: the group's queries, its key, its value."""
    rows = [tensor.reshape(shape.num_kv_heads, -1, *tensor.shape[1:]) for tensor in qkv]
    return torch.cat(rows, dim=1).flatten(0, 1)


def _deinterleave(whole: Tensor, shape: ModelShape) -> list[Tensor]:
    rows = whole.reshape(shape.num_kv_heads, -1, *whole.shape[1:])
    size = shape.head_size
    per_group = shape.num_heads // shape.num_kv_heads * size
    return [part.flatten(0, 1) for part in rows.split([per_group, size, size], dim=1)]


def _gather(shard: torch.nn.Parameter | None, part: Part) -> Tensor | None:
    """Return a part's shards, stacked, on the ranks of its stage in the first replica; None elsewhere."""
    if shard is None or ps.get_data_parallel_rank():
        return None
    size = ps.get_tensor_model_parallel_world_size()
    if size == 1 or part.sharded is None:
        return shard.detach()[None].contiguous()
    shards = torch.empty((size, *shard.shape), dtype=shard.dtype, device=shard.device)
    dist.all_gather(list(shards), shard.detach().contiguous(), group=_tensor_group())
    return shards


def _to_first_stage(part: Part, whole: Tensor | None, model: GPTModel, shape: ModelShape) -> Tensor | None:
    """Move a part from the stage that holds it to the first one; its shape is known there without asking."""
    stages = ps.get_pipeline_model_parallel_world_size()
    stage = _stage_of(part, shape, stages)
    if stage == 0 or ps.get_data_parallel_rank() or ps.get_tensor_model_parallel_rank():
        return whole
    group: Any = ps.get_pipeline_model_parallel_group()
    if whole is not None:
        dist.send(whole, group=group, group_dst=0)
        return None
    if ps.get_pipeline_model_parallel_rank():
        return None
    sizes, like = shape.tensors(), next(model.parameters())
    blank = [torch.empty(sizes[name], device="meta") for name in part.hf]
    shards = _join(part, blank, shape, ps.get_tensor_model_parallel_world_size())
    whole = torch.empty((len(_needed(part, shards)), *shards[0].shape), dtype=like.dtype, device=like.device)
    dist.recv(whole, group=group, group_src=stage)
    return whole


def _needed(part: Part, shards: list[Tensor]) -> list[Tensor]:
    """Return the shards that differ."""
    return shards[:1] if part.sharded is None else shards


def _stage_of(part: Part, shape: ModelShape, stages: int) -> int:
    if part.layer is not None:
        return part.layer * stages // shape.num_layers
    return 0 if part.megatron[0].startswith("embedding") else stages - 1


def _tensor_group() -> Any:  # noqa: ANN401 - Megatron's accessors have no usable types
    return ps.get_tensor_model_parallel_group()
