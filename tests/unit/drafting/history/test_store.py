"""The store as a state machine against a dictionary, its files and its checkpoints."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sestina.drafting.history.answers import Answers, to_record
from sestina.drafting.history.checkpoint import Restored, read_history, write_history
from sestina.drafting.history.store import HistoryStore

DIGEST = "0123456789abcdef"
LIMIT = 400
keys = st.integers(0, 7)


def record_of(seed, num_tokens):
    rng = np.random.default_rng(seed)
    return to_record(Answers(responses=(rng.integers(0, 1000, num_tokens).astype(np.int32),), weights=(1,)))


class StoreMachine(RuleBasedStateMachine):
    """What was put is what is got, wherever it lies; a damaged file is dropped and counted, and nothing else is."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = HistoryStore(self.folder / "history", limit_bytes=LIMIT)
        self.model = {}
        self.lost = 0

    def teardown(self):
        shutil.rmtree(self.folder)

    @rule(key=keys, seed=st.integers(0, 3), num_tokens=st.integers(0, 120))
    def put(self, key, seed, num_tokens):
        self.model[key] = record_of(seed, num_tokens)
        self.store.put(key, self.model[key])

    @rule(key=keys)
    def get(self, key):
        assert self.store.get(key) == self.model.get(key)

    @precondition(lambda self: self.store.num_spilled)
    @rule(data=st.data(), gone=st.booleans())
    def damage(self, data, gone):
        path = data.draw(st.sampled_from(sorted((self.folder / "history").iterdir())))
        if gone:
            path.unlink()
        else:
            raw = bytearray(path.read_bytes())
            raw[-1] ^= 1
            path.write_bytes(raw)
        key = int(path.name, 16)
        assert self.store.get(key) is None
        del self.model[key]
        self.lost += 1

    @rule(limit=st.sampled_from([1, LIMIT, 1 << 20]))
    def save_and_restore(self, limit):
        path = self.folder / "checkpoint"
        assert write_history(path, self.store, DIGEST) == len(self.model)
        self.store = HistoryStore(self.folder / "history", limit_bytes=limit)
        self.lost = 0
        done = read_history(path, self.store, DIGEST)
        assert done == Restored(num_records=len(self.model), num_dropped=0, why="")

    @rule()
    def clear(self):
        self.store.clear()
        self.model.clear()
        assert not (self.folder / "history").exists()

    @invariant()
    def holds(self):
        assert list(self.store.keys()) == sorted(self.model)
        assert len(self.store) == len(self.model)
        assert self.store.held_bytes <= self.store._limit_bytes
        assert sum(self.store.counts.values()) == self.lost
        spilled = self.store._spilled
        assert self.store.held_bytes == sum(len(raw) for key, raw in self.model.items() if key not in spilled)
        files = (self.folder / "history").iterdir() if spilled else ()
        assert {int(path.name, 16) for path in files} == spilled


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


@pytest.fixture
def store(tmp_path):
    store = HistoryStore(tmp_path / "history", limit_bytes=1 << 20)
    for key in range(5):
        store.put(key, record_of(key, 50))
    return store


@pytest.fixture
def saved(tmp_path, store):
    path = tmp_path / "checkpoint"
    write_history(path, store, DIGEST)
    return path


def restored(tmp_path, saved, digest=DIGEST):
    store = HistoryStore(tmp_path / "other", limit_bytes=1 << 20)
    return store, read_history(saved, store, digest)


def test_a_damaged_record_is_dropped_and_the_others_are_read(tmp_path, store, saved):
    raw = bytearray(saved.read_bytes())
    raw[raw.index(store.get(2)) + 20] ^= 1
    saved.write_bytes(raw)
    read, done = restored(tmp_path, saved)
    assert list(read.keys()) == [0, 1, 3, 4]
    assert done == Restored(num_records=4, num_dropped=1, why="damaged or cut short")


def test_a_file_cut_short_keeps_what_came_before(tmp_path, store, saved):
    raw = saved.read_bytes()
    saved.write_bytes(raw[: raw.index(store.get(3)) + 5])
    read, done = restored(tmp_path, saved)
    assert list(read.keys()) == [0, 1, 2]
    assert done.num_dropped == 2


def test_a_damaged_head_or_another_file_is_not_read(tmp_path, saved):
    raw = bytearray(saved.read_bytes())
    raw[3] ^= 1
    for content in (bytes(raw), b"", b"something else entirely, and longer than a head would be"):
        saved.write_bytes(content)
        read, done = restored(tmp_path, saved)
        assert len(read) == 0
        assert "not a history file" in done.why


def test_the_history_of_another_prompt_set_is_left_out(tmp_path, saved):
    read, done = restored(tmp_path, saved, digest="f" * 16)
    assert len(read) == 0
    assert done.num_dropped == 5
    assert "another prompt set, whose digest is 0123456789abcdef" in done.why


def test_no_file_at_all_says_why(tmp_path, saved):
    saved.unlink()
    assert restored(tmp_path, saved)[1].why == "No such file or directory"


def test_a_disk_that_takes_nothing_loses_records_and_no_run(tmp_path, caplog):
    (tmp_path / "file").write_text("not a folder")
    store = HistoryStore(tmp_path / "file" / "history", limit_bytes=1)
    store.put(1, record_of(1, 50))
    store.put(2, record_of(2, 50))
    assert (store.get(1), len(store), store.counts["unwritten"]) == (None, 0, 2)
    assert len(caplog.records) == 1
    assert "without history drafts" in caplog.text
