"""One weight update: tensors packed into buckets, broadcast in order, then a trailer of version and checksums.

The trailer comes last because a bucket is packed only when its turn comes: the trainer never holds a second copy of the
model. A receiver hands nothing on before the whole update is verified.
"""

from collections.abc import Iterable, Iterator, Mapping

import torch

from sestina.core.errors import WeightsError
from sestina.core.units import Version
from sestina.transport.messages import TensorEntry, WeightLayout
from sestina.weights.group import UpdateGroup

ALIGNMENT_BYTES = 8
"""Tensors start at multiples of this in their bucket; checksums read whole words."""


def layout_of(
    tensors: Mapping[str, torch.Size | tuple[int, ...]], dtype: torch.dtype, bucket_bytes: int
) -> WeightLayout:
    """Describe updates of tensors of these shapes, in this order and type."""
    name = str(dtype).removeprefix("torch.")
    entries = tuple(TensorEntry(name=key, shape=tuple(shape), dtype=name) for key, shape in tensors.items())
    return WeightLayout(tensors=entries, bucket_bytes=bucket_bytes)


def buckets_of(layout: WeightLayout) -> list[list[TensorEntry]]:
    """Cut the layout into buckets: consecutive tensors up to `bucket_bytes`, at least one each."""
    buckets: list[list[TensorEntry]] = []
    room = 0
    for entry in layout.tensors:
        size = _padded_bytes(entry)
        if size > room:
            buckets.append([])
            room = layout.bucket_bytes
        buckets[-1].append(entry)
        room -= size
    return buckets


def publish(
    group: UpdateGroup, layout: WeightLayout, version: Version, tensors: Iterable[tuple[str, torch.Tensor]]
) -> int:
    """Broadcast `tensors`, which must come in the layout's order; returns the bytes sent.

    Raises WeightsError when a tensor is not the layout's next, or the group does not take a bucket in time.
    """
    source = iter(tensors)
    trailer, sent = [version], 0
    for number, entries in enumerate(buckets_of(layout)):
        bucket = torch.zeros(sum(map(_padded_bytes, entries)), dtype=torch.uint8, device=group.device)
        for entry, part in zip(entries, _parts(bucket, entries), strict=True):
            part.copy_(_next(source, entry).reshape(-1))
        group.broadcast(bucket, f"bucket {number} of version {version}")
        trailer.append(checksum(bucket))
        sent += len(bucket)
    group.broadcast(torch.tensor(trailer, device=group.device), f"trailer of version {version}")
    return sent


def receive(
    group: UpdateGroup, layout: WeightLayout, version: Version, *, keep_on: torch.device
) -> dict[str, torch.Tensor]:
    """Take part in one `publish` and return its tensors on the device `keep_on`.

    Raises WeightsError when the update is of another version, a checksum differs, or a bucket does not come in time.
    """
    tensors: dict[str, torch.Tensor] = {}
    found: list[int] = []
    for number, entries in enumerate(buckets_of(layout)):
        bucket = torch.empty(sum(map(_padded_bytes, entries)), dtype=torch.uint8, device=group.device)
        group.broadcast(bucket, f"bucket {number} of version {version}")
        found.append(checksum(bucket))
        for entry, part in zip(entries, _parts(bucket.to(keep_on), entries), strict=True):
            tensors[entry.name] = part.view(entry.shape)
    trailer = torch.empty(1 + len(found), dtype=torch.int64, device=group.device)
    group.broadcast(trailer, f"trailer of version {version}")
    sent_version, *sent = trailer.tolist()
    if sent_version != version:
        raise WeightsError(f"expected version {version}, received version {sent_version}")
    damaged = [number for number, pair in enumerate(zip(found, sent, strict=True)) if pair[0] != pair[1]]
    if damaged:
        raise WeightsError(f"version {version} arrived damaged: checksums differ in buckets {damaged}")
    return tensors


def checksum(bucket: torch.Tensor) -> int:
    """Return a position-weighted sum, modulo 2**64, of a bucket's 8-byte words.

    The weights are odd, hence invertible: any single changed word changes the sum. Runs on the bucket's device.
    """
    words = bucket.view(torch.int64)
    weights = torch.arange(1, 2 * len(words), 2, device=words.device)
    return int((words * weights).sum())


def _itemsize(entry: TensorEntry) -> int:
    dtype: torch.dtype = getattr(torch, entry.dtype)
    return dtype.itemsize


def _padded_bytes(entry: TensorEntry) -> int:
    size = torch.Size(entry.shape).numel() * _itemsize(entry)
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _parts(bucket: torch.Tensor, entries: list[TensorEntry]) -> Iterator[torch.Tensor]:
    """Yield each entry's values as a flat view of the bucket."""
    start = 0
    for entry in entries:
        size = torch.Size(entry.shape).numel() * _itemsize(entry)
        yield bucket[start : start + size].view(getattr(torch, entry.dtype))
        start += _padded_bytes(entry)


def _next(source: Iterator[tuple[str, torch.Tensor]], entry: TensorEntry) -> torch.Tensor:
    name, tensor = next(source, ("nothing", torch.empty(0)))
    if name != entry.name or tuple(tensor.shape) != entry.shape:
        raise WeightsError(f"expected {entry.name} {entry.shape}, the model gave {name} {tuple(tensor.shape)}")
    return tensor.detach()
