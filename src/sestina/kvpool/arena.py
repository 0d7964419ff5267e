"""The entries in a node's shared memory: two files for all of them, which each process keeps open.

`index-N` says which blocks each entry has, with its key, its text and its checksums; `pages-N` is the blocks. N is the
tally's generation. Whoever calls holds the tally's lock, but for `write`, `read_into` and `raw` of what is the caller's
own. Blocks that were used once keep their memory, and are used again first.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.core.units import Seconds
from sestina.kvpool import _native
from sestina.kvpool.entry import ByteArray, Cells, EntryKey, Head, cells_of, entry_bytes, offset_of
from sestina.policies.kv_pool.room import Held

_SPARE = 2
"""Blocks for each that the limit allows: what is on its way to the SSD has left the tally, and not yet its blocks."""


class Arena:
    """One process's hold on them; an entry is named by a number of its own."""

    def __init__(self, folder: Path, generation: int, *, page_bytes: int, limit_bytes: int) -> None:
        """Join the others, or with `page_bytes` above 0 begin; raises OSError, FileNotFoundError with 0 and none."""
        self.generation = generation
        num_blocks = _SPARE * (limit_bytes // page_bytes + 1) if page_bytes else 0
        files = f"{folder}/index-{generation}", f"{folder}/pages-{generation}"
        self.native = _native.Arena(*files, page_bytes, num_blocks)
        self.page_bytes = self.native.page_bytes

    def make_ready(self, num_bytes: int) -> None:
        """Have so much memory, within the limit, before it is asked for; raises OSError."""
        if code := self.native.make_ready(num_bytes):
            raise OSError(code, os.strerror(code))

    def find(self, key: EntryKey) -> int:
        """Return an entry that can be taken; 0 when it is not there."""
        return self.native.find(*key.numbers)

    def num_bytes(self, entry: int) -> int:
        """Return what it counts in the tally, which is what its file would have."""
        return entry_bytes(self.native.num_pages(entry), self.page_bytes)

    def reserve(self, key: EntryKey, num_pages: int) -> int:
        """Return blocks for an entry, which nobody finds before it is published; 0 when there are too few."""
        return self.native.reserve(*key.numbers, num_pages)

    def write(self, entry: int, cells: Cells, pages: Sequence[int]) -> None:
        """Copy pages into reserved blocks; raises OSError."""
        if cells.page_bytes != self.page_bytes:
            raise self.wrong_pages(cells)
        if code := self.native.write(entry, cells.layout, pages):
            raise OSError(code, os.strerror(code))

    def wrong_pages(self, cells: Cells) -> OSError:
        """Return what is wrong with pages that are not as large as these blocks."""
        return OSError(f"shared memory has pages of {self.page_bytes} bytes, not {cells.page_bytes}")

    def publish(self, entry: int, num_tokens: int, digest: int, used_s: Seconds) -> None:
        """Let what was written be found."""
        self.native.publish(entry, num_tokens, digest, used_s)

    def remove(self, entry: int) -> None:
        """Let nobody find it any more; its blocks are then the caller's."""
        self.native.remove(entry)

    def free(self, entry: int) -> None:
        """Give blocks back that are the caller's."""
        self.native.free(entry)

    def lift(self, entry: int) -> int:
        """Mark an entry as moving: it can be taken, and nothing else; returns what `moves` knows it by."""
        self.native.set_moving(entry, True)
        return self.native.serial(entry)

    def moves(self, entry: int, serial: int) -> bool:
        """Whether an entry that was lifted is still there."""
        return self.native.serial(entry) == serial and self.native.moves(entry)

    def is_moving(self, entry: int) -> bool:
        """Whether somebody has lifted it."""
        return self.native.moves(entry)

    def head(self, entry: int, key: EntryKey) -> Head:
        """Return what is known of an entry; raises DataError when that is damaged."""
        num_tokens, _, digest = self.text(entry, key)
        return Head(num_tokens=num_tokens, page_bytes=self.page_bytes, digest=digest, sums=self.native.sums(entry))

    def sums(self, entry: int) -> list[int]:
        """Return the checksums of its pages."""
        return self.native.sums(entry)

    def text(self, entry: int, key: EntryKey) -> tuple[int, int, int]:
        """Return tokens, pages and digest of an entry; raises DataError as `head` does."""
        text = self.native.text(entry)
        if text is None:
            raise DataError(f"{key.name}: its header is damaged")
        return text

    def read_into(self, entry: int, cells: Cells, pages: Sequence[int], skip: int) -> int:
        """Copy pages from number `skip` on to these; returns how many stand before the first damaged one."""
        return self.native.read(entry, skip, cells.layout, pages)

    def raw(self, entry: int, key: EntryKey) -> ByteArray:
        """Return an entry as its file would be, damaged pages as they are; raises DataError as `head` does."""
        head = self.head(entry, key)
        num_pages, start = len(head.sums), offset_of(len(head.sums))
        raw = np.zeros(entry_bytes(num_pages, self.page_bytes), np.uint8)
        raw[:start] = np.frombuffer(head.packed(key), np.uint8)
        self.read_into(entry, cells_of(raw[start:].reshape(num_pages, -1)), range(num_pages), 0)
        return raw

    def held(self) -> Iterator[Held]:
        """Yield what can be found and stays where it is."""
        for version, group, sample, num_pages, used_s in self.native.held():
            name = EntryKey(version=version, request=RequestId(group, sample)).name
            yield Held(name=name, tier="dram", num_bytes=entry_bytes(num_pages, self.page_bytes), used_s=used_s)
