import subprocess
import sys

import pytest

LIMIT_S = 30
BORN = """
import os, signal, time
from sestina.rewards.sandbox import launcher
parent = os.getpid()
child, pipe = launcher._fork()
if child:
    {ending}
{waiting}
launcher._end_with_parent(pipe)
print("lives", flush=True)
"""
WAITING = "while os.getppid() == parent: time.sleep(0.01)"


@pytest.mark.parametrize(
    ("ending", "waiting", "said"),
    [
        ("os.kill(parent, signal.SIGKILL)", WAITING, ""),
        ("os.waitpid(child, 0); os._exit(0)", "pass", "lives\n"),
    ],
)
def test_a_process_whose_parent_ended_before_it_could_say_so_ends(ending, waiting, said):
    command = [sys.executable, "-c", BORN.format(ending=ending, waiting=waiting)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.stdout, done.stderr) == (said, "")
