import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from sestina.core.errors import RunError, UserError
from sestina.kvpool import master as masters
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.kvpool.entry import read_entry
from sestina.kvpool.master import Master
from sestina.kvpool.mooncake import BUFFER_BYTES, MooncakePool, check_package
from tests.unit.kvpool.test_local import PAGE_BYTES, content, key_of, size_of

CONFIG = MooncakeKvPoolConfig(
    kind="mooncake", master=None, segment_bytes=16 << 20, protocol="tcp", device="", move="always"
)


@pytest.fixture(scope="module")
def package():
    pytest.importorskip("mooncake.store", reason="Mooncake, or libibverbs1, is not installed", exc_type=ImportError)


@pytest.fixture(scope="module")
def master(package, tmp_path_factory):
    master = Master(tmp_path_factory.mktemp("mooncake") / "logs" / "master.log")
    yield master
    master.end()


def join(master, name="x", config=CONFIG):
    return MooncakePool(config, name, master=master.address, host="127.0.0.1")


@pytest.fixture(scope="module")
def pools(master):
    pools = [join(master) for _ in range(2)]
    yield pools
    for pool in pools:
        pool.close()


def read(pool, key, num_pages=1):
    found = pool.take(key)
    if found is None:
        return None
    tokens, pages = content(key, num_pages)
    entry = read_entry(found.read(), key, tokens, page_bytes=PAGE_BYTES, page_tokens=16)
    assert (entry.whole, found.tier, found.num_bytes) == (True, "dram", size_of(num_pages))
    return np.array_equal(entry.pages, pages)


def test_what_one_instance_stores_another_one_takes_once(pools):
    stored = pools[0].store(key_of(1), *content(key_of(1), 2))
    assert (stored.target, stored.num_bytes) == ("dram", size_of(2))
    assert read(pools[1], key_of(1), 2)
    assert [pool.take(key_of(1)) for pool in pools] == [None, None]


def test_what_was_never_resumed_is_replaced(pools):
    for num_pages in (3, 1, 2):
        pools[0].store(key_of(2), *content(key_of(2), num_pages))
    assert read(pools[1], key_of(2), 2)


def test_what_is_left_unread_is_gone(pools):
    pools[0].store(key_of(3), *content(key_of(3), 1))
    pools[1].take(key_of(3)).close()
    assert pools[0].take(key_of(3)) is None


def test_other_weights_and_other_runs_find_nothing(pools, master):
    for version in (0, 1, 10):
        key = key_of(4, version)
        pools[0].store(key, *content(key, 1))
    other = join(master, "y")
    assert other.take(key_of(4)) is None
    other.forget(7)
    pools[1].forget(1)
    assert [read(pools[1], key_of(4, version)) for version in (0, 1, 10)] == [None, True, None]
    other.close()


def test_what_has_no_room_is_said_to_have_none(pools):
    tokens, _ = content(key_of(5), 1)
    for num_bytes in (17 << 20, BUFFER_BYTES + 1):
        assert pools[0].store(key_of(5), tokens, np.zeros((1, 2 * num_bytes), np.uint8)).target == "full"


def test_what_comes_before_mooncake_has_made_room_has_none(pools):
    pages = np.zeros((1, 1 << 20), np.uint8)
    stored = [pools[0].store(key_of(group), content(key_of(group), 1)[0], pages).target for group in range(100, 180)]
    assert set(stored) <= {"dram", "full"}
    assert stored[:20] == ["dram"] * 20
    pools[0].forget(9)


def test_an_entry_that_goes_between_look_and_read_is_a_failure(pools):
    pools[0].store(key_of(6), *content(key_of(6), 1))
    found = pools[0].take(key_of(6))
    pools[1].take(key_of(6)).close()
    with pytest.raises(OSError, match="Mooncake has lost sestina-x/0-6-0.kv"):
        found.read()


def test_a_master_that_dies_costs_what_would_move_and_is_said_once(package, tmp_path, caplog):
    master = Master(tmp_path / "master.log")
    pool = join(master)
    assert pool.store(key_of(0), *content(key_of(0), 1)).target == "dram"
    master.end()
    with caplog.at_level(logging.WARNING):
        with pytest.raises(OSError, match="Mooncake"):
            pool.take(key_of(0))
        assert [pool.store(key_of(group), *content(key_of(group), 1)).target for group in range(3)] == ["failed"] * 3
        with pytest.raises(OSError, match="given up"):
            pool.take(key_of(0))
        pool.forget(1)
    assert [record.message.partition(" (")[0] for record in caplog.records] == ["KV pool: Mooncake does not answer"]
    pool.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [("", "there is no mooncake_master"), ("127.0.0.1:1", "no mooncake_master answers at 127.0.0.1:1")],
)
def test_without_a_master_a_pool_keeps_nothing_and_says_so(address, said, caplog):
    with caplog.at_level(logging.WARNING):
        pool = MooncakePool(CONFIG, "x", master=address, host="127.0.0.1")
    assert said in caplog.text
    assert pool.store(key_of(0), *content(key_of(0), 1)).target == "failed"
    with pytest.raises(OSError, match="given up"):
        pool.take(key_of(0))
    pool.close()


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(UserError, match="pip install mooncake-transfer-engine-non-cuda=="):
        check_package()


def test_a_master_that_cannot_start_says_where_its_log_is(tmp_path, monkeypatch):
    monkeypatch.setattr(masters, "environment", lambda: os.environ | {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / "__init__.py").touch()
    with pytest.raises(RunError, match=r"mooncake_master ended with exit code 1; its log: .*m\.log"):
        Master(tmp_path / "m.log")


def test_a_master_ends_with_the_process_that_started_it(package, tmp_path):
    code = """
import sys
from pathlib import Path
from sestina.kvpool.master import Master
print(Master(Path(sys.argv[1])).pid)
"""
    said = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.log"], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    deadline = time.monotonic() + 10
    while psutil.pid_exists(int(said.stdout)) and psutil.Process(int(said.stdout)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert Path(tmp_path / "m.log").exists()


def test_the_runs_own_master_listens_on_loopback_alone(master):
    listening = [
        each.laddr.ip for each in psutil.Process(master.pid).net_connections() if each.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"] * 2
