"""Checks a checkpoint's files without loading them: headers say every tensor's shape and the file's true length."""

from pathlib import Path

from safetensors import SafetensorError, safe_open

from sestina.core.errors import ModelError
from sestina.models.index import files_of
from sestina.models.shape import ModelShape

MAX_REPORTED = 3
"""Problems named in one message; a wrong config.json usually makes hundreds of the same kind."""


def check_files(directory: Path, shape: ModelShape) -> None:
    """Raise ModelError when a file is missing or truncated, or the tensors are not those config.json describes."""
    found: dict[str, tuple[int, ...]] = {}
    for path in files_of(directory):
        found |= _shapes(path)
    if shape.tied:
        found.pop("lm_head.weight", None)
    check_shapes(found, shape, str(directory))


def check_shapes(found: dict[str, tuple[int, ...]], shape: ModelShape, where: str) -> None:
    """Raise ModelError unless the tensors are exactly those of `shape`."""
    expected = shape.tensors()
    problems = [f"tensor {name} is missing" for name in expected.keys() - found.keys()]
    problems += [f"tensor {name} is not part of the model" for name in found.keys() - expected.keys()]
    problems += [
        f"tensor {name} has shape {list(found[name])}, config.json says {list(size)}"
        for name, size in expected.items()
        if name in found and found[name] != size
    ]
    if problems:
        shown = sorted(problems)[:MAX_REPORTED]
        more = f" (and {len(problems) - len(shown)} more)" if len(problems) > len(shown) else ""
        raise ModelError(f"{where}: {'; '.join(shown)}{more}")


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        with safe_open(path, framework="np") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: truncated or not safetensors: {error}") from None
