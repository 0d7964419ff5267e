"""The control plane between two real MPI ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.mpi_cases import SIZES
from tests.integration.worlds import ROOT

pytestmark = pytest.mark.mpi


def play(case, *others):
    rank = [sys.executable, "-m", "mpi4py", "-m", "tests.integration.mpi_cases"]
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", "1", *rank, "controller", case]
    for role in others or ("rollout",):
        command += [":", "-n", "1", *rank, role, case]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_messages_keep_their_order():
    seen = play("messages_keep_their_order")
    assert seen["names"] == [word for n in range(len(SIZES)) for word in (f"batch {n}", str(n))]
    assert seen["whole"]
    assert seen["sources"] == [1]


def test_who_sleeps_is_woken():
    assert play("who_sleeps_is_woken") == [True] * 20


def test_broadcasts_arrive():
    assert play("broadcasts_arrive") == {"equal": [True] * len(SIZES)}


def test_a_broadcast_has_a_deadline():
    assert play("a_broadcast_has_a_deadline") == "waited 0.1 s for weights of version 3"


def test_a_message_nobody_takes_has_a_deadline():
    assert play("a_message_nobody_takes_has_a_deadline") == "waited 0.2 s for ranks [1] to take their messages"


@pytest.mark.parametrize("case", ["answers_find_who_asked", "ranks_on_two_machines_look_by_themselves"])
def test_answers_find_who_asked(case):
    seen = play(case, "rollout", "trainer")
    assert seen == {
        "late": "waited 0.2 s for rollout 0 (rank 1): to load weights of version 1",
        "hello": ["rollout", "trainer"],
    }


def test_silence_is_noticed_by_the_rank():
    assert play("silence_is_noticed_by_the_rank") == ["rollout", "waited 0.3 s for a sign of life from the controller"]


def test_silence_is_noticed_by_the_controller():
    assert play("silence_is_noticed_by_the_controller") == "waited 0.5 s for a sign of life from rollout 0 (rank 1)"


def test_a_busy_rank_keeps_nobody_from_hearing():
    assert play("a_busy_rank_keeps_nobody_from_hearing", "rollout", "trainer") == "all is well"
