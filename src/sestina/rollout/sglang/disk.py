"""Weights to a server through files: slower than a broadcast, and independent of any process group."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from sestina.core.units import Seconds, Version
from sestina.models.weights import write_tensors
from sestina.rollout.sglang.client import SGLangClient


async def send_by_disk(
    client: SGLangClient, version: Version, tensors: Mapping[str, Tensor], *, flush: bool, limit_s: Seconds
) -> None:
    """Replace all weights of a server that is paused, and flush its cache, if so asked.

    Writes them below TMPDIR, and removes them. Raises EngineError with what the server says when it refuses,
    ServerLostError when it ends or is late.
    """
    with tempfile.TemporaryDirectory(prefix="sestina-weights-") as folder:
        await asyncio.to_thread(write_tensors, Path(folder), tensors.items())
        body = {
            "model_path": folder,
            "load_format": "safetensors",
            "weight_version": str(version),
            "flush_cache": flush,
        }
        await client.post("/update_weights_from_disk", body, limit_s)
