"""An entry's way from the SSD to memory."""

import numpy as np

from sestina.core.errors import DataError
from sestina.kvpool.blocks import Blocks
from sestina.kvpool.entry import ByteArray, EntryKey, Head, cells_of, entry_bytes, open_head, pages_of
from sestina.kvpool.memory import Memory
from sestina.kvpool.shelf import Shelf


def raise_entry(memory: Memory, ssd: Shelf, key: EntryKey) -> bool:
    """Bring to memory what is marked as moving; False when it was taken meanwhile, is damaged, or cannot be moved.

    A damaged entry stays on the SSD, where whoever takes it finds the damage.
    """
    try:
        raw = np.fromfile(ssd.moving(key.name), np.uint8)
        used_s = ssd.moving(key.name).stat().st_mtime
        head = open_head(raw, key)
        blocks = _copied(memory, key, head, pages_of(raw, head))
    except (OSError, DataError):
        return False
    if blocks is None:
        return False
    with memory.tally:
        there = ssd.moving(key.name).exists() and blocks.arena.sums(blocks.entry) == list(head.sums)
        if there:
            blocks.arena.publish(blocks.entry, head.num_tokens, head.digest, used_s)
            ssd.moving(key.name).unlink()
    if not there:
        blocks.close()
    return there


def _copied(memory: Memory, key: EntryKey, head: Head, pages: ByteArray) -> Blocks | None:
    """Return blocks with these pages; None when some are missing, or there is no room. Raises OSError."""
    num_bytes = entry_bytes(len(head.sums), head.page_bytes)
    with memory.tally:
        if len(pages) < len(head.sums) or not memory.has(num_bytes):
            return None
        blocks = memory.claim(key, len(pages), head.page_bytes, num_bytes)
    if blocks is not None:
        blocks.write(cells_of(pages), range(len(pages)))
    return blocks
