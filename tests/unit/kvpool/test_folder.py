import os
import signal
import subprocess
import sys

from sestina.kvpool.folder import PREFIX, Folder, clear, sweep

HOLD = """
import sys, time
from pathlib import Path
from sestina.kvpool.folder import Folder
folder = Folder(Path(sys.argv[1]), "x")
(folder.path / "entry.kv").write_bytes(b"1")
print("held", flush=True)
time.sleep(60)
"""


def holder(parent):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def killed(process):
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    process.stdout.close()


def test_the_last_one_to_close_removes_the_folder(tmp_path):
    first, second = Folder(tmp_path, "x"), Folder(tmp_path, "x")
    (first.path / "entry.kv").write_bytes(b"1")
    first.close()
    assert (second.path / "entry.kv").exists()
    second.close()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_leaves_is_cleared_and_what_a_living_one_holds_is_not(tmp_path):
    process = holder(tmp_path)
    sweep(tmp_path)
    assert not clear(tmp_path, "x", 0.05)
    assert (tmp_path / f"{PREFIX}x" / "entry.kv").exists()
    killed(process)
    assert clear(tmp_path, "x", 5)
    assert not list(tmp_path.iterdir())
    assert clear(tmp_path, "x", 0)


def test_a_new_folder_holds_nothing_of_a_dead_run_of_the_same_name(tmp_path):
    killed(holder(tmp_path))
    folder = Folder(tmp_path, "x")
    assert not (folder.path / "entry.kv").exists()
    folder.close()


def test_a_folder_sweeps_those_beside_it(tmp_path):
    killed(holder(tmp_path))
    Folder(tmp_path, "y").close()
    assert not list(tmp_path.iterdir())
