"""Reading and writing safetensors checkpoints, whole or sharded, checked against the shape config.json states."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from sestina.core.errors import ModelError
from sestina.models.shape import ModelShape

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_REPORTED = 3
"""Problems named in one message; a wrong config.json usually makes hundreds of the same kind."""


def read_weights(directory: Path, shape: ModelShape) -> dict[str, torch.Tensor]:
    """Read every tensor of a checkpoint in its stored dtype.

    Raises ModelError naming the file when one is missing or truncated, and naming the tensor when one is missing,
    unknown or of another shape.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in _files(directory):
        tensors |= _read_file(path)
    if shape.tied:
        tensors.pop("lm_head.weight", None)
    check_tensors(tensors, shape, f"{directory}")
    return tensors


def check_tensors(tensors: Mapping[str, torch.Tensor], shape: ModelShape, where: str) -> None:
    """Raise ModelError unless `tensors` are exactly those of `shape`."""
    expected = shape.tensors()
    problems = [f"tensor {name} is missing" for name in expected.keys() - tensors.keys()]
    problems += [f"tensor {name} is not part of the model" for name in tensors.keys() - expected.keys()]
    problems += [
        f"tensor {name} has shape {list(tensors[name].shape)}, config.json says {list(size)}"
        for name, size in expected.items()
        if name in tensors and tuple(tensors[name].shape) != size
    ]
    if problems:
        shown = sorted(problems)[:MAX_REPORTED]
        more = f" (and {len(problems) - len(shown)} more)" if len(problems) > len(shown) else ""
        raise ModelError(f"{where}: {'; '.join(shown)}{more}")


def write_model(directory: Path, shape: ModelShape, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write config.json and one safetensors file; creates the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(shape.to_hf(), indent=2) + "\n")
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, directory / WEIGHTS, metadata={"format": "pt"})


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


def _files(directory: Path) -> list[Path]:
    index = directory / INDEX
    if not index.exists():
        return [directory / WEIGHTS]
    try:
        weight_map: dict[str, Any] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise ModelError(f"{index}: not a safetensors index: {error!r}") from None
    return [directory / name for name in sorted(set(weight_map.values()))]


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: truncated or not safetensors: {error}") from None
