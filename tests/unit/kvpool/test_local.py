import logging
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sestina.core.ids import RequestId
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.entry import EntryKey, cells_of, head_of, read_entry
from sestina.kvpool.local import READY_BYTES, LocalPool

PAGE_BYTES = 128
ROOT = Path(__file__).resolve().parents[3]


def content(key, num_pages):
    rng = np.random.default_rng([key.version, key.request.group, num_pages])
    tokens = rng.integers(0, 99, 16 * num_pages).astype(np.int32)
    return tokens, rng.integers(0, 256, (num_pages, PAGE_BYTES)).astype(np.uint8)


def size_of(num_pages):
    key = EntryKey(version=0, request=RequestId(0, 0))
    tokens, pages = content(key, num_pages)
    return len(head_of(key, tokens, pages)) + pages.nbytes


ONE = size_of(1)


def key_of(group, version=0):
    return EntryKey(version=version, request=RequestId(group, 0))


class Node:
    """A folder that plays shared memory, one that plays a disk, and processes that share them."""

    def __init__(self, root, *, dram=3 * ONE, ssd=3 * ONE, processes=1):
        self.shared, self.disk = root / "shm", root / "disk"
        self.shared.mkdir()
        self.disk.mkdir()
        config = LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=dram, ssd_bytes=ssd, ssd_dir=self.disk)
        self.pools = [LocalPool(config, "x", shared=self.shared) for _ in range(processes)]

    def store(self, key, num_pages=1, by=0):
        return self.pools[by].store(key, *content(key, num_pages))

    def read(self, key, num_pages=1, by=0):
        found = self.pools[by].take(key)
        if found is None:
            return None
        tokens, pages = content(key, num_pages)
        entry = read_entry(found.read(), key, tokens, page_bytes=PAGE_BYTES, page_tokens=16)
        assert entry.whole
        assert np.array_equal(entry.pages, pages)
        return found.tier

    def in_memory(self):
        """What is held there, by name."""
        with self.pools[0]._tiers.tally:
            return {entry.name: entry.num_bytes for entry in self.pools[0]._tiers.memory.held()}

    def on_disk(self):
        return {path.name: path.stat().st_size for path in self.disk.glob("*/*.kv*")}

    def close(self):
        for pool in self.pools:
            pool.close()


def test_what_one_process_stores_another_one_takes_once(node):
    stored = node.store(key_of(1), 2)
    assert (stored.target, stored.num_bytes) == ("dram", size_of(2))
    assert node.read(key_of(1), 2, by=1) == "dram"
    assert node.read(key_of(1), 2) is None
    assert node.in_memory() == {}


def test_memory_that_an_entry_had_is_the_next_ones(node):
    for turn in range(50):
        num_pages = 1 + turn % 3
        node.store(key_of(turn), num_pages, by=turn % 2)
        assert node.pools[0]._tiers.tally["dram"] == size_of(num_pages)
        assert node.read(key_of(turn), num_pages) == "dram"
        assert node.pools[0]._tiers.tally["dram"] == 0
    [index] = node.shared.glob("*/index-*")
    blocks_used, _, entries_used, _ = struct.unpack_from("<4I", index.read_bytes(), 24)
    assert (blocks_used, entries_used) == (3, 1)


@pytest.mark.parametrize(("dram", "least", "most"), [(1 << 30, READY_BYTES, READY_BYTES), (3 * ONE, 3 * ONE, 9 * ONE)])
def test_memory_is_there_before_the_first_entry_and_within_the_limit(tmp_path, dram, least, most):
    node = Node(tmp_path, dram=dram, ssd=0)
    node.pools[0].prepare(PAGE_BYTES)
    [pages] = node.shared.glob("*/pages-*")
    assert least <= pages.stat().st_blocks * 512
    assert pages.stat().st_size <= most
    assert node.pools[0]._tiers.tally["dram"] == 0, "nothing is in it"
    node.close()


def test_room_is_made_on_the_ssd_and_then_by_dropping(node):
    for group in range(6):
        assert node.store(key_of(group), by=group % 2).target == "dram"
    assert sorted(node.on_disk()) == ["0-0-0.kv", "0-1-0.kv", "0-2-0.kv"]
    stored = node.store(key_of(6))
    assert (stored.target, stored.demoted, stored.evicted) == ("dram", 1, 1)
    assert node.read(key_of(0)) is None
    assert [node.read(key_of(group)) for group in range(1, 7)] == ["ssd"] * 3 + ["dram"] * 3


def test_what_comes_next_stays_and_a_full_pool_says_so(node):
    for group in range(6):
        node.store(key_of(group))
    for pool in node.pools:
        pool.upcoming = frozenset(key_of(group).name for group in range(6))
    assert node.store(key_of(6)).target == "full"
    assert node.store(key_of(7), 9).target == "full"
    assert [node.read(key_of(group)) for group in range(6)] == ["ssd"] * 3 + ["dram"] * 3


def test_what_comes_next_is_promoted_as_far_as_there_is_room(node):
    for group in range(5):
        node.store(key_of(group))
    names = [key_of(group).name for group in (0, 1, 9)]
    assert node.pools[0].on_ssd(names) == [(key_of(0).name, ONE), (key_of(1).name, ONE)]
    assert [node.pools[1].promote(name) for name in names] == [False, False, False]
    node.read(key_of(4))
    assert [node.pools[1].promote(name) for name in names] == [True, False, False]
    assert [node.read(key_of(group)) for group in range(4)] == ["dram", "ssd", "dram", "dram"]
    assert node.in_memory() == node.on_disk() == {}
    assert all(node.store(key_of(group)).target == "dram" for group in range(3)), "the tally is right again"


def test_other_weights_find_nothing_and_nothing_of_theirs_stays(node):
    for group in range(5):
        node.store(key_of(group))
    assert node.pools[1].take(key_of(1, version=1)) is None
    node.pools[0].forget(1)
    node.pools[1].forget(1)
    assert node.in_memory() == node.on_disk() == {}
    assert [node.pools[0]._tiers.tally[tier] for tier in ("dram", "ssd")] == [0, 0]
    for group in range(6):
        assert node.store(key_of(group, version=1)).evicted == 0


def test_an_ssd_that_cannot_be_written_is_given_up_and_said_once(node, caplog):
    node.store(key_of(0))
    shutil.rmtree(node.disk)
    node.disk.touch()  # root may write into any folder, but into no file
    with caplog.at_level(logging.WARNING):
        stored = [node.store(key_of(group)) for group in range(1, 6)]
    assert [s.target for s in stored] == ["dram"] * 5
    assert [(s.demoted, s.evicted) for s in stored] == [(0, 0)] * 2 + [(0, 1)] * 3
    assert [record.levelname for record in caplog.records if "is given up" in record.message] == ["WARNING"]
    assert [node.read(key_of(group)) for group in range(3, 6)] == ["dram"] * 3
    with pytest.raises(NotADirectoryError):
        node.pools[0].take(key_of(0))
    node.disk.unlink()
    node.disk.mkdir()


def test_a_folder_for_the_ssd_that_cannot_be_made_leaves_memory(tmp_path, caplog):
    (tmp_path / "file").touch()
    config = LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=ONE, ssd_bytes=ONE, ssd_dir=tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        pool = LocalPool(config, "x", shared=tmp_path)
    assert "the SSD is given up" in caplog.text
    assert pool.store(key_of(0), *content(key_of(0), 1)).target == "dram"
    assert pool.store(key_of(1), *content(key_of(1), 1)).evicted == 1
    pool.close()


SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
from tests.unit.kvpool.test_local import ONE, PAGE_BYTES, Node, key_of
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
node = Node(Path(sys.argv[1]), dram=int(sys.argv[2]), ssd=100 * ONE)
tiers = node.pools[0]._tiers
with tiers.tally:
    tiers.memory.arena(PAGE_BYTES)  # what says which entries there are; none of their memory
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
print(node.store(key_of(0), 3).target, node.store(key_of(1), 1).target, node.in_memory(), node.on_disk())
print(node.pools[0]._tiers.tally["dram"], node.pools[0]._tiers.tally["ssd"])
node.close()
"""


@pytest.mark.parametrize(
    ("dram", "most", "said"),
    [
        (100 * ONE, PAGE_BYTES + 40, f"failed dram {{'0-1-0.kv': {ONE}}} {{}}\n{ONE} 0\n"),
        (1, ONE + 40, "failed full {} {}\n0 0\n"),
    ],
    ids=["memory", "disk"],
)
def test_a_file_that_ends_in_the_middle_of_an_entry_leaves_nothing(tmp_path, dram, most, said):
    """As where memory, or a disk, is full: some of the bytes are written, then none. The SSD is then given up."""
    command = [sys.executable, "-c", SMALL_FILES, str(tmp_path), str(dram), str(most)]
    assert subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == said


BUSY = """
import random, sys
from pathlib import Path
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.local import READY_BYTES, LocalPool
from tests.unit.kvpool.test_local import ONE, cells_of, content, key_of, read_entry, PAGE_BYTES
root, seed = Path(sys.argv[1]), int(sys.argv[2])
config = LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=4 * ONE, ssd_bytes=5 * ONE, ssd_dir=root / "disk")
pool, rng = LocalPool(config, "x", shared=root / "shm"), random.Random(seed)
for _ in range(300):
    key = key_of(3 * rng.randrange(4) + seed)  # a request runs in one place at a time
    tokens, pages = content(key, 1)
    near, found = pool.take_near(key), None
    if near is not None:
        target = pages * 0
        assert near.put(tokens, cells_of(target), [0], skip=0, page_tokens=16) == (16, True)
        assert (target == pages).all()
    else:
        found = pool.take(key)
    if found is not None:
        assert read_entry(found.read(), key, content(key, 1)[0], page_bytes=PAGE_BYTES, page_tokens=16).whole
    if rng.randrange(4):
        stored = pool.store_near(key, tokens, cells_of(pages), [0]) if rng.randrange(2) else None
        assert (stored or pool.store(key, tokens, pages)).target != "failed"
    others = [key_of(rng.randrange(12)).name]
    for name, _ in pool.on_ssd(others):
        pool.promote(name)
"""


def test_processes_at_work_at_once_keep_the_tally(tmp_path):
    node = Node(tmp_path, dram=4 * ONE, ssd=5 * ONE)
    command = [sys.executable, "-c", BUSY, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(seed)], cwd=ROOT) for seed in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    tally = node.pools[0]._tiers.tally
    assert sum(node.in_memory().values()) == tally["dram"] <= 4 * ONE
    assert sum(node.on_disk().values()) == tally["ssd"] <= 5 * ONE
    node.close()


class PoolMachine(RuleBasedStateMachine):
    """Two processes store, take and promote at will; the tiers keep within their limits and nothing is mixed up."""

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.node = Node(self.root, dram=4 * ONE, ssd=5 * ONE, processes=2)
        self.pages = {}
        self.taken = {}

    @rule(group=st.integers(0, 12), num_pages=st.integers(1, 6), by=st.integers(0, 1))
    def store_near(self, group, num_pages, by):
        key, (tokens, pages) = key_of(group), content(key_of(group), num_pages)
        stored = self.node.pools[by].store_near(key, tokens, cells_of(pages[::-1].copy()), range(num_pages)[::-1])
        assert stored is None or stored.target == "dram"
        self.pages[group] = num_pages if stored is not None else self.pages.get(group)

    @precondition(lambda self: self.pages)
    @rule(data=st.data(), by=st.integers(0, 1))
    def take_near(self, data, by):
        group = data.draw(st.sampled_from(sorted(self.pages)))
        found = self.node.pools[by].take_near(key_of(group))
        if found is not None:
            assert group not in self.taken or self.pages[group] is not None
            self.put_or_leave(group)
            self.taken[group] = found, self.pages.pop(group)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), skip=st.integers(0, 2))
    def put(self, data, skip):
        group = data.draw(st.sampled_from(sorted(self.taken)))
        found, num_pages = self.taken.pop(group)
        tokens, pages = content(key_of(group), num_pages)
        target = np.zeros((9, PAGE_BYTES), np.uint8)
        got = found.put(tokens, cells_of(target), list(range(8, 8 - num_pages, -1)), skip=skip, page_tokens=16)
        assert got == (len(tokens), True)
        assert np.array_equal(target[8 - num_pages + 1 :][::-1][skip:], pages[skip:])
        assert not target[9 - skip :].any() or num_pages < skip

    def put_or_leave(self, group):
        """One request's chunk that was given up."""
        if group in self.taken:
            self.taken.pop(group)[0].close()

    @rule(group=st.integers(0, 12), num_pages=st.integers(1, 6), by=st.integers(0, 1))
    def store(self, group, num_pages, by):
        stored = self.node.store(key_of(group), num_pages, by)
        assert stored.target in ("dram", "ssd", "full")
        self.pages[group] = num_pages if stored.target != "full" else None

    @precondition(lambda self: self.pages)
    @rule(data=st.data(), by=st.integers(0, 1))
    def take(self, data, by):
        group = data.draw(st.sampled_from(sorted(self.pages)))
        num_pages = self.pages.pop(group)
        tier = self.node.read(key_of(group), num_pages or 1, by)
        assert tier is None or num_pages is not None

    @rule(groups=st.lists(st.integers(0, 12), max_size=4), by=st.integers(0, 1))
    def promote(self, groups, by):
        names = [key_of(group).name for group in groups]
        for name, _ in self.node.pools[by].on_ssd(names):
            self.node.pools[by].promote(name)

    @rule(groups=st.frozensets(st.integers(0, 12), max_size=6), by=st.integers(0, 1))
    def expect(self, groups, by):
        self.node.pools[by].upcoming = frozenset(key_of(group).name for group in groups)

    @invariant()
    def limits_hold_and_the_tally_is_right(self):
        tally = self.node.pools[0]._tiers.tally
        in_memory, on_disk = self.node.in_memory(), self.node.on_disk()
        taken = sum(found.num_bytes for found, _ in self.taken.values())
        assert sum(in_memory.values()) + taken == tally["dram"] <= 4 * ONE
        assert sum(on_disk.values()) == tally["ssd"] <= 5 * ONE
        assert not in_memory.keys() & on_disk.keys()

    def teardown(self):
        for group in list(self.taken):
            self.put_or_leave(group)
        self.limits_hold_and_the_tally_is_right()
        self.node.close()
        left = list(self.node.shared.iterdir())
        shutil.rmtree(self.root)
        assert not left


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=25, stateful_step_count=30)
