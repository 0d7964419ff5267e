import struct

import numpy as np
import pytest

from sestina.core.errors import DataError
from sestina.core.ids import RequestId
from sestina.kvpool._native import checksum
from sestina.kvpool.entry import EntryKey, head_of, offset_of, read_entry

KEY = EntryKey(version=3, request=RequestId(7, 2))
TOKENS = np.arange(100, 137, dtype=np.int32)
PAGE_BYTES = 256


@pytest.fixture
def pages():
    return np.random.default_rng(0).integers(0, 256, (3, PAGE_BYTES)).astype(np.uint8)


@pytest.fixture
def raw(pages):
    return np.frombuffer(head_of(KEY, TOKENS, pages) + pages.tobytes(), np.uint8).copy()


def read(raw, key=KEY, known=TOKENS):
    return read_entry(raw, key, known, page_bytes=PAGE_BYTES, page_tokens=16)


def test_what_was_written_is_read_by_a_request_with_more_tokens(raw, pages):
    entry = read(raw, known=np.append(TOKENS, [5, 6]).astype(np.int32))
    assert (entry.num_tokens, entry.whole) == (37, True)
    assert np.array_equal(entry.pages, pages)


def test_pages_before_a_damaged_one_are_used(raw, pages):
    raw[offset_of(3) + 2 * PAGE_BYTES + 5] ^= 1
    entry = read(raw)
    assert (entry.num_tokens, entry.whole, len(entry.pages)) == (32, False, 2)
    raw[offset_of(3)] ^= 1
    assert read(raw).num_tokens == 0


def test_pages_before_the_end_of_a_truncated_file_are_used(raw):
    assert read(raw[:-1]).num_tokens == 32
    assert read(raw[: offset_of(3) + PAGE_BYTES + 3]).num_tokens == 16
    assert read(raw[: offset_of(3)]).num_tokens == 0


@pytest.mark.parametrize("length", [0, 5, 71, 72, 90])
def test_a_file_without_its_whole_header_is_refused(raw, length):
    with pytest.raises(DataError, match="3-7-2.kv"):
        read(raw[:length])


def test_every_bit_of_the_header_counts(raw):
    for place in range(72 + 3 * 8):
        damaged = raw.copy()
        damaged[place] ^= 0x10
        with pytest.raises(DataError, match="3-7-2.kv"):
            read(damaged)


@pytest.mark.parametrize(
    ("key", "known"),
    [
        (EntryKey(version=4, request=RequestId(7, 2)), TOKENS),
        (EntryKey(version=3, request=RequestId(7, 3)), TOKENS),
        (KEY, TOKENS[:-1]),
        (KEY, np.where(TOKENS == 120, 0, TOKENS).astype(np.int32)),
    ],
    ids=["other weights", "other request", "fewer tokens", "other tokens"],
)
def test_an_entry_of_something_else_is_refused(raw, key, known):
    with pytest.raises(DataError, match="holds"):
        read(raw, key, known)


def test_pages_of_another_model_are_refused(raw):
    with pytest.raises(DataError, match="pages of 256 bytes, not 512"):
        read_entry(raw, KEY, TOKENS, page_bytes=512, page_tokens=16)


def test_a_sealed_header_with_fewer_pages_than_none_is_refused(raw):
    header = raw[:48].tobytes() + struct.pack("<q", -1) + raw[56:64].tobytes()
    forged = np.frombuffer(header + struct.pack("<Q", checksum(header)), np.uint8)
    with pytest.raises(DataError, match="another text"):
        read(forged)
