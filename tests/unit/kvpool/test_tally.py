"""The lock of a node's processes, and what becomes of memory when its holder is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sestina.core.errors import DeadlineError
from sestina.kvpool import tally as tallies
from sestina.kvpool.entry import cells_of
from sestina.kvpool.tally import Tally
from tests.unit.kvpool.test_local import ONE, content, key_of, size_of

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys, time
from pathlib import Path
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.local import LocalPool
root, ssd = Path(sys.argv[1]), int(sys.argv[2])
config = LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=100, ssd_bytes=ssd, ssd_dir=root / "disk")
pool = LocalPool(config, "x", shared=root / "shm")
with pool._tiers.tally:
    pool._tiers.tally.add("dram", 7)
    pool._tiers.tally.add("ssd", 7)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path, node):
    command = [sys.executable, "-c", HOLD, str(tmp_path), str(3 * ONE)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait(10)
    process.stdout.close()


def hold(process):
    assert process.stdout.readline() == "held\n"


def store_near(pool, key, num_pages=1):
    tokens, pages = content(key, num_pages)
    return pool.store_near(key, tokens, cells_of(pages), range(num_pages))


def test_a_process_that_is_killed_with_the_lock_costs_what_is_in_memory(node, holder):
    for group in range(4):
        node.store(key_of(group))
    taken = node.pools[0].take_near(key_of(1))
    hold(holder)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(10)
    assert store_near(node.pools[1], key_of(5)) is None, "whoever has to put it in order is not asked at once"
    assert [node.read(key_of(group)) for group in range(4)] == ["ssd", None, None, None]
    tally = node.pools[0]._tiers.tally
    assert (tally.generation, tally["dram"], tally["ssd"]) == (1, 0, 0)
    taken.close()
    assert tally["dram"] == 0, "it was of what is gone"
    assert [node.store(key_of(group), by=group % 2).target for group in range(3)] == ["dram"] * 3
    assert [node.read(key_of(group)) for group in range(3)] == ["dram"] * 3
    assert {path.name for path in node.shared.glob("*/[ip]*-*")} == {"index-1", "pages-1"}


def test_what_was_being_written_into_lost_memory_is_not_found(node, holder):
    node.pools[0].prepare(128)
    tokens, pages = content(key_of(1), 2)
    with node.pools[0]._tiers.tally:
        blocks = node.pools[0]._tiers.memory.claim(key_of(1), 2, 128, size_of(2))
    hold(holder)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(10)
    blocks.fill(tokens, cells_of(pages), range(2))
    assert node.pools[1].take(key_of(1)) is None
    assert node.pools[1]._tiers.tally["dram"] == 0


def test_disorder_that_cannot_be_mended_keeps_nobody_out(tmp_path):
    count = iter([OSError("no such folder"), 7])

    def count_ssd():
        found = next(count)
        if isinstance(found, OSError):
            raise found
        return found

    tally = Tally(tmp_path / "tally", count_ssd=count_ssd)
    tally.native.set(3, 1)
    with pytest.raises(OSError, match="no such folder"), tally:
        pass
    with tally:
        assert (tally.generation, tally["ssd"]) == (1, 7)
    with tally:
        assert tally.generation == 1


def test_nobody_waits_for_a_lock_without_end(monkeypatch, node, holder):
    monkeypatch.setattr(tallies, "LOCK_S", 0.05)
    node.store(key_of(1))
    hold(holder)
    with pytest.raises(DeadlineError, match="the lock of"):
        node.store(key_of(2))
    assert node.pools[0].take_near(key_of(1)) is None
    assert store_near(node.pools[0], key_of(3)) is None
    holder.kill()
    holder.wait(10)
