"""The file of one request's keys and values, or the object of a store.

    header       72 bytes: magic, version, group, sample, tokens, page bytes, pages, digest of the tokens, own checksum
    checksums    8 bytes for each page
    pages        each `page_bytes`, the last one perhaps not full; from a multiple of 64 on

The header's checksum covers the checksums of the pages. Weights' version, request and tokens are in the header as well
as in the name, so that whatever a file is called, only what fits is used.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.core.units import TokenArray, Version
from sestina.kvpool._native import checksum, checksums

ByteArray = npt.NDArray[np.uint8]
Layout: TypeAlias = tuple[int, int, int, int, int]
"""Address, strides of pages and of their parts, parts of a page, bytes of a part."""

_MAGIC = b"SESTKV02"
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

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What it is to native code."""
        request = self.request
        return self.version, request.group, request.sample

    @classmethod
    def named(cls, name: str) -> "EntryKey":
        """Return the key whose file is called so."""
        version, group, sample = map(int, name.removesuffix(SUFFIX).split("-"))
        return cls(version=version, request=RequestId(group, sample))


@dataclass(frozen=True, slots=True)
class Cells:
    """Memory that native code copies pages from and to: [pages, parts, bytes], each part in one piece."""

    content: ByteArray
    layout: Layout = field(init=False)
    """Where what lies; good for as long as `content` is held."""
    page_bytes: int = field(init=False)
    """All parts of a page."""

    def __post_init__(self) -> None:
        pages, parts, num_bytes = self.content.strides
        assert num_bytes == 1, "a part lies in pieces"
        layout = self.content.ctypes.data, pages, parts, *self.content.shape[1:]
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "page_bytes", layout[3] * layout[4])


def cells_of(pages: ByteArray) -> Cells:
    """Return pages [pages, page bytes], which lie in one piece, as such."""
    return Cells(pages[:, None])


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


@cache
def entry_bytes(num_pages: int, page_bytes: int) -> int:
    """Return how large an entry is."""
    return offset_of(num_pages) + num_pages * page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a header says of the pages behind it."""

    num_tokens: int
    page_bytes: int
    digest: int
    """Of the tokens."""
    sums: Sequence[int]
    """Of the pages."""

    def packed(self, key: EntryKey) -> bytes:
        """Return all that stands before the pages."""
        num_pages = len(self.sums)
        header = _HEADER.pack(_MAGIC, *key.numbers, self.num_tokens, self.page_bytes, num_pages, self.digest)
        sums = struct.pack(f"<{num_pages}Q", *self.sums)
        return (header + _CHECKSUM.pack(checksum(header + sums)) + sums).ljust(offset_of(num_pages), b"\0")


def check_text(
    key: EntryKey, known: TokenArray, *, num_tokens: int, num_pages: int, digest: int, page_tokens: int
) -> None:
    """Raise DataError unless what an entry holds is the KV of the first `num_tokens` of `known`."""
    fits = num_tokens <= len(known) and num_pages == -(-num_tokens // page_tokens)
    if not fits or digest != digest_of(known[:num_tokens]):
        raise DataError(f"{key.name} holds another text")


def wrong_pages(key: EntryKey, found_bytes: int, page_bytes: int) -> DataError:
    """Return what is wrong with pages that are not as large as they should be."""
    return DataError(f"{key.name} holds pages of {found_bytes} bytes, not {page_bytes}")


def head_of(key: EntryKey, tokens: TokenArray, pages: ByteArray) -> bytes:
    """Return all that stands before the pages [pages, page bytes], which hold the KV of `tokens`."""
    sums = checksums(pages.ctypes.data, pages.shape[1], len(pages))
    return Head(num_tokens=len(tokens), page_bytes=pages.shape[1], digest=digest_of(tokens), sums=sums).packed(key)


def digest_of(tokens: TokenArray) -> int:
    """Return what tells one text from another."""
    return checksum(np.ascontiguousarray(tokens, np.int32))


def read_entry(raw: ByteArray, key: EntryKey, known: TokenArray, *, page_bytes: int, page_tokens: int) -> Entry:
    """Verify a file and return what of it can be used by a request whose tokens are `known`.

    Raises DataError when the header is damaged, or speaks of something else.
    """
    head = open_head(raw, key)
    if head.page_bytes != page_bytes:
        raise wrong_pages(key, head.page_bytes, page_bytes)
    check_text(
        key,
        known,
        num_tokens=head.num_tokens,
        num_pages=len(head.sums),
        digest=head.digest,
        page_tokens=page_tokens,
    )
    pages = pages_of(raw, head)
    good = _leading(pages, head.sums)
    whole = good == len(head.sums)
    return Entry(num_tokens=head.num_tokens if whole else good * page_tokens, pages=pages[:good], whole=whole)


def pages_of(raw: ByteArray, head: Head) -> ByteArray:
    """Return the pages [pages, page bytes] behind a header, as far as they are there."""
    body = raw[offset_of(len(head.sums)) :]
    return body[: len(body) // head.page_bytes * head.page_bytes].reshape(-1, head.page_bytes)[: len(head.sums)]


def open_head(raw: ByteArray, key: EntryKey) -> Head:
    """Return the header of a file; raises DataError when it is damaged, or another request's."""
    start = _HEADER.size + _CHECKSUM.size
    if len(raw) < start:
        raise DataError(f"{key.name} is {len(raw)} bytes long, its header {start}")
    header = raw[: _HEADER.size].tobytes()
    magic, version, group, sample, num_tokens, page_bytes, num_pages, digest = _HEADER.unpack(header)
    end = start + 8 * max(0, num_pages)
    if magic != _MAGIC or end > len(raw) or page_bytes <= 0:
        raise DataError(f"{key.name} is no file of keys and values")
    sums = raw[start:end].tobytes()
    if _CHECKSUM.unpack(raw[_HEADER.size : start].tobytes())[0] != checksum(header + sums):
        raise DataError(f"{key.name}: its header is damaged")
    found = EntryKey(version=version, request=RequestId(group, sample))
    if found != key:
        raise DataError(f"{key.name} holds {found.name}")
    return Head(
        num_tokens=num_tokens, page_bytes=page_bytes, digest=digest, sums=struct.unpack(f"<{len(sums) // 8}Q", sums)
    )


def _leading(pages: ByteArray, sums: Sequence[int]) -> int:
    """Return how many pages there are before the first damaged one."""
    found = checksums(pages.ctypes.data, pages.shape[1], len(pages))
    if found == list(sums[: len(pages)]):
        return len(pages)
    return next(number for number, pair in enumerate(zip(found, sums, strict=False)) if pair[0] != pair[1])
