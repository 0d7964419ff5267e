"""The file of one request's keys and values.

    header       72 bytes: magic, version, group, sample, tokens, page bytes, pages, digest of the tokens, own checksum
    checksums    8 bytes for each page
    pages        each `page_bytes`, the last one perhaps not full; from a multiple of 64 on

The header's checksum covers the checksums of the pages. Weights' version, request and tokens are in the header as well
as in the name, so that whatever a file is called, only what fits is used.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.core.units import TokenArray, Version

ByteArray = npt.NDArray[np.uint8]

_MAGIC = b"SESTKV01"
_HEADER = struct.Struct("<8s6qQ")
_CHECKSUM = struct.Struct("<Q")
SUFFIX = ".kv"
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryKey:
    """Whose keys and values, and of which weights."""

    version: Version
    request: RequestId

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.version}-{self.request.group}-{self.request.sample}{SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was read and verified."""

    num_tokens: int
    pages: ByteArray
    """[pages, page bytes]"""
    whole: bool
    """False when it stops before a page that is damaged or missing."""


def offset_of(num_pages: int) -> int:
    """Return where the pages begin."""
    return -(-(_HEADER.size + _CHECKSUM.size + 8 * num_pages) // _ALIGNMENT) * _ALIGNMENT


def head_of(key: EntryKey, tokens: TokenArray, pages: ByteArray) -> bytes:
    """Return all that stands before the pages [pages, page bytes], which hold the KV of `tokens`."""
    header = _HEADER.pack(
        _MAGIC,
        key.version,
        key.request.group,
        key.request.sample,
        len(tokens),
        pages.shape[1],
        len(pages),
        _digest(tokens),
    )
    checksums = struct.pack(f"<{len(pages)}Q", *map(xxh3_64_intdigest, pages))
    sealed = header + _CHECKSUM.pack(xxh3_64_intdigest(header + checksums)) + checksums
    return sealed.ljust(offset_of(len(pages)), b"\0")


def read_entry(raw: ByteArray, key: EntryKey, known: TokenArray, *, page_bytes: int, page_tokens: int) -> Entry:
    """Verify a file and return what of it can be used by a request whose tokens are `known`.

    Raises DataError when the header is damaged, or speaks of something else.
    """
    num_tokens, num_pages, digest, sums = _open(raw, key, page_bytes)
    if num_tokens > len(known) or num_pages != -(-num_tokens // page_tokens) or digest != _digest(known[:num_tokens]):
        raise DataError(f"{key.name} holds another text")
    body = raw[offset_of(num_pages) :]
    pages = body[: len(body) // page_bytes * page_bytes].reshape(-1, page_bytes)[:num_pages]
    good = _leading(pages, sums)
    return Entry(
        num_tokens=num_tokens if good == num_pages else good * page_tokens,
        pages=pages[:good],
        whole=good == num_pages,
    )


def _open(raw: ByteArray, key: EntryKey, page_bytes: int) -> tuple[int, int, int, Sequence[int]]:
    start = _HEADER.size + _CHECKSUM.size
    if len(raw) < start:
        raise DataError(f"{key.name} is {len(raw)} bytes long, its header {start}")
    magic, version, group, sample, num_tokens, found_bytes, num_pages, digest = _HEADER.unpack(
        raw[: _HEADER.size].tobytes()
    )
    end = start + 8 * max(0, num_pages)
    if magic != _MAGIC or end > len(raw):
        raise DataError(f"{key.name} is no file of keys and values")
    header, sums = raw[: _HEADER.size].tobytes(), raw[start:end].tobytes()
    if _CHECKSUM.unpack(raw[_HEADER.size : start].tobytes())[0] != xxh3_64_intdigest(header + sums):
        raise DataError(f"{key.name}: its header is damaged")
    found = EntryKey(version=version, request=RequestId(group, sample))
    if found != key or found_bytes != page_bytes:
        raise DataError(f"{key.name} holds {found.name} in pages of {found_bytes} bytes, not {page_bytes}")
    return num_tokens, num_pages, digest, struct.unpack(f"<{len(sums) // 8}Q", sums)


def _leading(pages: ByteArray, sums: Sequence[int]) -> int:
    """Return how many pages there are before the first damaged one."""
    found = tuple(map(xxh3_64_intdigest, pages))
    if found == tuple(sums[: len(pages)]):
        return len(pages)
    return next(number for number, pair in enumerate(zip(found, sums, strict=False)) if pair[0] != pair[1])


def _digest(tokens: TokenArray) -> int:
    return xxh3_64_intdigest(np.ascontiguousarray(tokens, np.int32).tobytes())
