"""Which safetensors files a checkpoint consists of."""

import json
from pathlib import Path
from typing import Any

from sestina.core.errors import ModelError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def files_of(directory: Path) -> list[Path]:
    """Return the files an index names, else the single file; raises ModelError when the index is malformed."""
    index = directory / INDEX
    if not index.exists():
        return [directory / WEIGHTS]
    try:
        weight_map: dict[str, Any] = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise ModelError(f"{index}: not a safetensors index: {error!r}") from None
    return [directory / name for name in sorted(set(weight_map.values()))]
