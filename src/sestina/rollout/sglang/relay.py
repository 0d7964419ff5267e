"""Weights from the rollout rank to its server: the rank has verified them, and keeps them for a server to come.

One gloo group of this rank and the server's tensor-parallel processes. An update is opened, sent in buckets, closed;
generation is paused meanwhile. SGLang refuses by HTTP status and would then never take part in the broadcast that
belongs to the call: each broadcast ends as soon as its call has failed.
"""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from sestina.core.errors import WeightsError
from sestina.core.units import Seconds, Version
from sestina.rollout.sglang.client import SGLangClient
from sestina.transport.mpi import Pause
from sestina.weights.rendezvous import open_store


class Relay:
    """Open it with `open_relay`; one update at a time."""

    def __init__(
        self,
        client: SGLangClient,
        name: str,
        group: Any,  # noqa: ANN401 - torch's stubs lack its methods
        bucket_bytes: int,
        limit_s: Seconds,
    ) -> None:
        self._client = client
        self._name, self._group = name, group
        self._bucket_bytes = bucket_bytes
        self._limit_s = limit_s

    async def send(self, version: Version, tensors: Mapping[str, Tensor], *, flush: bool) -> None:
        """Replace all weights of a server that is paused, and flush its cache, if so asked.

        Raises WeightsError when it refuses a part or does not take it in time, ServerLostError when it ends meanwhile.
        """
        await self._post("/begin_weight_update", {})
        buckets = list(_buckets(tensors, self._bucket_bytes))
        for number, names in enumerate(buckets, start=1):
            last = {"weight_version": str(version), "flush_cache": flush} if number == len(buckets) else {}
            await self._send_bucket(f"bucket {number} of version {version}", names, tensors, last)
        await self._post("/end_weight_update", {})

    async def _send_bucket(
        self, what: str, names: list[str], tensors: Mapping[str, Tensor], last: dict[str, object]
    ) -> None:
        chosen = [tensors[name] for name in names]
        body = {
            "names": names,
            "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in chosen],
            "shapes": [list(tensor.shape) for tensor in chosen],
            "group_name": self._name,
            "load_format": "flattened_bucket",
            "flush_cache": False,
        }
        flat = torch.cat([tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) for tensor in chosen])
        call = asyncio.ensure_future(self._post("/update_weights_from_distributed", body | last))
        options = dist.BroadcastOptions()
        options.rootRank = 0
        work = self._group.broadcast([flat], options)
        try:
            async with asyncio.timeout(self._limit_s):
                await _until_sent(work, call)
                await call
        except TimeoutError:
            raise WeightsError(f"waited {self._limit_s:g} s for SGLang to take {what}") from None
        finally:
            call.cancel()

    async def _post(self, path: str, body: dict[str, object]) -> None:
        await self._client.post(path, body, self._limit_s)


async def open_relay(
    client: SGLangClient, name: str, *, tensor_parallel: int, bucket_bytes: int, limit_s: Seconds
) -> Relay:
    """Form the group with a server that is ready; raises EngineError when it refuses, or is late.

    `name` must be another one for every group that this process ever forms.
    """
    meeting = open_store("127.0.0.1", limit_s)
    body = {
        "master_address": meeting.host,
        "master_port": meeting.port,
        "rank_offset": 1,
        "world_size": 1 + tensor_parallel,
        "group_name": name,
        "backend": "gloo",
    }
    call = asyncio.ensure_future(client.post("/init_weights_update_group", body, limit_s))
    joined = asyncio.to_thread(_join, name, meeting.store, 1 + tensor_parallel, limit_s)
    group, _ = await asyncio.gather(joined, call)
    return Relay(client, name, group, bucket_bytes, limit_s)


def _join(name: str, store: dist.Store, world_size: int, limit_s: Seconds) -> Any:  # noqa: ANN401 - torch's stubs lack it
    """Do what SGLang's init_custom_process_group does on the other side, so that both look for the same keys."""
    group, _ = distributed_c10d._new_process_group_helper(
        world_size,
        0,
        [],
        dist.Backend("gloo"),
        dist.PrefixStore(name, store),
        group_name=dist.GroupName(name),
        timeout=timedelta(seconds=limit_s),
    )
    return group


async def _until_sent(work: Any, call: "asyncio.Future[None]") -> None:  # noqa: ANN401 - torch's stubs lack it
    pause = Pause()
    while not work.is_completed():
        if call.done():
            await call  # raises when the server has refused; else its processes are about to finish
        await asyncio.sleep(pause.next_s())
    work.wait()


def _buckets(tensors: Mapping[str, Tensor], bucket_bytes: int) -> Iterator[list[str]]:
    """Yield names of consecutive tensors of one dtype, up to `bucket_bytes` or one tensor."""
    names: list[str] = []
    room, dtype = 0, None
    for name, tensor in tensors.items():
        if names and (tensor.nbytes > room or tensor.dtype != dtype):
            yield names
            names = []
        if not names:
            room, dtype = bucket_bytes, tensor.dtype
        names.append(name)
        room -= tensor.nbytes
    if names:
        yield names
