import io
import os
import signal
import subprocess
import sys

from rich.console import Console

from sestina.controller import launcher
from sestina.kvpool.config import LocalKvPoolConfig, pool_name
from sestina.kvpool.folder import PREFIX
from sestina.kvpool.local import SHARED_MEMORY

HOLD = """
import sys, time
from pathlib import Path
from sestina.kvpool.config import LocalKvPoolConfig
from sestina.kvpool.local import LocalPool
disk = Path(sys.argv[2])
config = LocalKvPoolConfig(kind="local", dram_bytes=100, ssd_bytes=100, ssd_dir=disk, move="always")
pool = LocalPool(config, sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_the_launcher_removes_what_a_killed_rank_held(tmp_path, monkeypatch):
    name = pool_name(tmp_path)
    folders = [SHARED_MEMORY / f"{PREFIX}{name}", tmp_path / f"{PREFIX}{name}"]
    config = LocalKvPoolConfig(kind="local", dram_bytes=100, ssd_bytes=100, ssd_dir=tmp_path, move="always")
    rank = subprocess.Popen([sys.executable, "-c", HOLD, name, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert rank.stdout.readline() == "held\n"
    said = Console(file=io.StringIO(), width=300)
    monkeypatch.setattr(launcher, "GONE_S", 0.05)
    launcher._clear_pool(config, name, said)
    assert all(folder.exists() for folder in folders), "nothing is taken from a rank that lives"
    assert "waited 0.05 s for the ranks to be gone; /dev/shm may hold" in said.file.getvalue()
    os.kill(rank.pid, signal.SIGKILL)
    rank.wait(10)
    rank.stdout.close()
    launcher._clear_pool(config, name, said)
    assert not any(folder.exists() for folder in folders)
