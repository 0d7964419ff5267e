"""Reading and writing safetensors checkpoints, whole or sharded, checked against the shape config.json states."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from sestina.core.errors import ModelError
from sestina.models.files import check_shapes
from sestina.models.index import INDEX, WEIGHTS, files_of
from sestina.models.shape import ModelShape

MAX_SHARD_BYTES = 5 << 30
"""Size of a shard beyond which the next tensor goes into another."""


def read_weights(directory: Path, shape: ModelShape) -> dict[str, torch.Tensor]:
    """Read every tensor of a checkpoint in its stored dtype.

    Raises ModelError naming the file when one is missing or truncated, and naming the tensor when one is missing,
    unknown or of another shape.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in files_of(directory):
        tensors |= _read_file(path)
    if shape.tied:
        tensors.pop("lm_head.weight", None)
    check_tensors(tensors, shape, f"{directory}")
    return tensors


def check_tensors(tensors: Mapping[str, torch.Tensor], shape: ModelShape, where: str) -> None:
    """Raise ModelError unless `tensors` are exactly those of `shape`."""
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, shape, where)


def write_model(
    directory: Path,
    shape: ModelShape,
    tensors: Iterable[tuple[str, torch.Tensor]],
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write config.json and safetensors, sharded when large; creates the directory, holds one shard at a time."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(shape.to_hf(), indent=2) + "\n")
    write_tensors(directory, tensors, max_shard_bytes=max_shard_bytes)


def write_tensors(
    directory: Path, tensors: Iterable[tuple[str, torch.Tensor]], *, max_shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write safetensors alone into a directory that is there."""
    shards: list[list[str]] = []
    for shard in _shards(tensors, max_shard_bytes):
        shards.append(list(shard))
        save_file(shard, directory / _partial(len(shards)), metadata={"format": "pt"})
    if len(shards) == 1:
        (directory / _partial(1)).rename(directory / WEIGHTS)
        return
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        final = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (directory / _partial(number)).rename(directory / final)
        weight_map |= dict.fromkeys(names, final)
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=2) + "\n")


def random_weights(shape: ModelShape, seed: int) -> dict[str, torch.Tensor]:
    """Return float32 weights for training from scratch: normal with deviation 0.02, norms one, biases zero."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, size in shape.tensors().items():
        if name.endswith("norm.weight"):
            tensors[name] = torch.ones(size)
        elif name.endswith("bias"):
            tensors[name] = torch.zeros(size)
        else:
            tensors[name] = torch.randn(size, generator=generator) * 0.02
    return tensors


def _shards(tensors: Iterable[tuple[str, torch.Tensor]], max_bytes: int) -> Iterator[dict[str, torch.Tensor]]:
    shard: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > max_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = tensor.detach().cpu().contiguous()
        size += tensor.nbytes
    yield shard


def _partial(number: int) -> str:
    return f"shard-{number}.partial"


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: truncated or not safetensors: {error}") from None
