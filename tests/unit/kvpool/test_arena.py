"""What native code says of pages, and what it makes of damaged ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.errors import DataError
from sestina.kvpool._native import checksum, checksums
from sestina.kvpool.entry import Cells, cells_of, read_entry
from tests.unit.kvpool.test_local import PAGE_BYTES, Node, content, key_of

LENGTHS = st.one_of(st.integers(1, 40), st.integers(250, 262), st.integers(500, 1030))


@given(length=LENGTHS, seed=st.integers(0, 99), data=st.data())
def test_every_bit_and_the_length_count(length, seed, data):
    bytes_ = np.random.default_rng(seed).integers(0, 256, length).astype(np.uint8)
    other = bytes_.copy()
    other[data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert checksum(other) != checksum(bytes_)
    assert checksum(np.append(bytes_, np.uint8(0))) != checksum(bytes_)
    assert checksum(bytes_[:-1].copy()) != checksum(bytes_)


@given(seed=st.integers(0, 99), data=st.data())
def test_words_that_change_places_are_noticed(seed, data):
    words = np.random.default_rng(seed).integers(0, 1 << 62, 128)
    first, second = data.draw(st.lists(st.integers(0, 127), min_size=2, max_size=2, unique=True))
    other = words.copy()
    other[[first, second]] = words[[second, first]]
    assert checksum(other) != checksum(words)


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, dram=1 << 20, processes=2)
    yield node
    node.close()


@pytest.mark.parametrize(("parts", "part_bytes"), [(1, 128), (2, 64), (8, 16), (128, 1)])
def test_pages_in_pieces_are_the_same_entry(node, parts, part_bytes):
    key = key_of(1)
    tokens, pages = content(key, 3)
    cache = np.zeros((parts, 9, part_bytes), np.uint8)
    cells = Cells(cache.transpose(1, 0, 2))
    cells.content[[7, 2, 4]] = pages.reshape(3, parts, part_bytes)
    node.pools[0].prepare(PAGE_BYTES)
    for _ in range(2):
        assert node.pools[0].store_near(key, tokens, cells, [7, 2, 4]).target == "dram"
        entry = read_entry(node.pools[1].take(key).read(), key, tokens, page_bytes=PAGE_BYTES, page_tokens=16)
        assert entry.whole
        assert np.array_equal(entry.pages, pages)
    assert checksums(pages.ctypes.data, PAGE_BYTES, 3) == [checksum(page) for page in pages]


def taken_after(node, harm):
    """An entry of four pages that was taken after damage to the file of pages."""
    key = key_of(1)
    tokens, pages = content(key, 4)
    node.store(key, 4)
    node.pools[1].prepare(PAGE_BYTES)
    [path] = node.shared.glob("*/pages-*")
    harm(path)
    return node.pools[1].take_near(key), tokens, pages


def put(found, tokens, skip=0):
    target = np.zeros((4, PAGE_BYTES), np.uint8)
    return found.put(tokens, cells_of(target), range(4), skip=skip, page_tokens=16), target


def test_what_its_request_has_left_before_is_not_replaced_in_a_moment(node):
    tokens, pages = content(key_of(1), 2)
    node.store(key_of(1), 2)
    assert node.pools[0].store_near(key_of(1), tokens, cells_of(pages), range(2)) is None
    assert node.read(key_of(1), 2) == "dram"


def flip(place):
    def harm(path):
        raw = bytearray(path.read_bytes())
        raw[place] ^= 1
        path.write_bytes(raw)

    return harm


def cut(num_bytes):
    return lambda path: path.write_bytes(path.read_bytes()[:num_bytes])


@pytest.mark.parametrize(
    ("harm", "good"),
    [(flip(0), 0), (flip(300), 2), (flip(511), 3), (cut(0), 0), (cut(200), 1), (cut(511), 3)],
    ids=["first", "third", "last", "nothing left", "in the second", "one byte"],
)
def test_pages_before_a_damaged_one_are_used(node, harm, good):
    found, tokens, pages = taken_after(node, harm)
    got, target = put(found, tokens)
    assert got == (16 * good, False)
    assert np.array_equal(target[:good], pages[:good])
    assert node.pools[0]._tiers.tally["dram"] == 0, "a damaged entry gives its room back"


def test_pages_that_are_there_already_are_not_looked_at(node):
    found, tokens, pages = taken_after(node, flip(100))
    got, target = put(found, tokens, skip=2)
    assert got == (64, True)
    assert not target[:2].any()
    assert np.array_equal(target[2:], pages[2:])


@pytest.mark.parametrize("known", [lambda t: t[:-1], lambda t: np.where(t == t[5], t + 1, t)], ids=["fewer", "others"])
def test_an_entry_of_another_text_is_refused(node, known):
    found, tokens, _ = taken_after(node, lambda path: None)
    with pytest.raises(DataError, match="0-1-0.kv is damaged, or holds another text"):
        put(found, known(tokens).astype(np.int32))
    assert node.pools[0]._tiers.tally["dram"] == 0


def test_pages_of_another_model_are_refused(node, caplog):
    found, tokens, _ = taken_after(node, lambda path: None)
    wide = cells_of(np.zeros((4, 2 * PAGE_BYTES), np.uint8))
    with pytest.raises(DataError, match="pages of 128 bytes, not 256"):
        found.put(tokens, wide, range(4), skip=0, page_tokens=16)
    assert node.pools[0]._tiers.tally["dram"] == 0
    assert node.pools[0].store_near(key_of(2), tokens, wide, range(4)).target == "failed"
    assert "pages of 128 bytes, not 256" in caplog.text
    assert node.pools[0].store(key_of(2), tokens, wide.content[:, 0]).target == "failed"
    assert node.pools[0]._tiers.tally["dram"] == 0


ENTRY = 64 + 4096 + 80
"""Where the index has its first entry: behind its head, the buckets and an entry that is none."""


def changed(path, place, value):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(value)


@pytest.mark.parametrize("place", range(80))
def test_whatever_is_changed_of_what_is_known_of_an_entry_no_wrong_page_comes_of_it(node, place):
    key = key_of(1)
    tokens, pages = content(key, 4)
    node.store(key, 4)
    [index] = node.shared.glob("*/index-*")
    changed(index, ENTRY + place, bytes([index.read_bytes()[ENTRY + place] ^ 0x11]))
    found = node.pools[0].take_near(key)
    if found is None:
        return
    try:
        got, target = put(found, tokens)
    except DataError:
        return
    assert got == (64, True)
    assert np.array_equal(target, pages)


def test_an_entry_whose_version_is_changed_is_not_that_versions(node):
    tokens, _ = content(key_of(1), 4)
    node.store(key_of(1), 4)
    [index] = node.shared.glob("*/index-*")
    changed(index, ENTRY, (1).to_bytes(8, "little"))
    found = node.pools[0].take_near(key_of(1, version=1))
    with pytest.raises(DataError, match="1-1-0.kv is damaged"):
        put(found, tokens)
    node.store(key_of(2), 4)
    changed(index, ENTRY, (1).to_bytes(8, "little"))
    with pytest.raises(DataError, match="its header is damaged"):
        node.pools[0].take(key_of(2, version=1)).read()
