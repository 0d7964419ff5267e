import subprocess
import sys
import time
from contextlib import closing

import pytest

from sestina.controller.deaths import DeathWatch
from sestina.telemetry.status import RankProcess


@pytest.fixture
def sleepers():
    processes = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_the_first_to_die_is_named_however_soon_the_others_follow(sleepers):
    ranks = [RankProcess(name=f"rank {i}", host="here", pid=process.pid) for i, process in enumerate(sleepers)]
    with closing(DeathWatch()) as deaths:
        deaths.add([*ranks, RankProcess(name="never was", host="here", pid=2**22 + 1)])
        deaths.add(ranks)
        time.sleep(0.3)
        assert deaths.first == ()
        sleepers[1].kill()
        time.sleep(0.05)
        sleepers[0].kill()
        sleepers[2].kill()
        time.sleep(0.3)
    assert [rank.name for rank in deaths.first] == ["rank 1"]
