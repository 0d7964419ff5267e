import os

import pytest

from sestina.config.load import load
from sestina.controller.node import claim_gpus, meeting_host, own_host
from sestina.core.errors import UserError
from tests.unit.cluster.jobs import FEW_GPUS, GPUS, SLURM
from tests.unit.config.helpers import changed, composed

CASES = [
    (GPUS, "rollout", 13, "e5"),
    (GPUS, "trainer", 3, "e3"),
    ((*GPUS, "rollout.num_instances=6"), "rollout", 3, "e4,e5,e6,e7"),
    ((*FEW_GPUS, "cluster.layout=single"), "rollout", 2, "e4,e5"),
    ((*FEW_GPUS, "cluster.layout=single"), "trainer", 1, "e7"),
]


@pytest.mark.parametrize(("argv", "role", "index", "seen"), CASES)
def test_a_rank_sees_its_own_gpus_alone(monkeypatch, argv, role, index, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(f"e{number}" for number in range(8)))
    claim_gpus(load(composed(*argv)), role, index)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_a_node_that_gives_too_few_is_told(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match="trainer 3 needs GPU 3 of its node's, the job has 2 there"):
        claim_gpus(load(composed(*GPUS)), "trainer", 3)


@pytest.mark.parametrize("argv", [SLURM, ("+exp=quickstart",)])
def test_runs_on_cpus_are_left_alone(monkeypatch, argv):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    claim_gpus(load(composed(*argv)), "trainer", 0)


def test_where_ranks_meet():
    assert meeting_host(load(composed("+exp=quickstart"))) == "127.0.0.1"
    assert meeting_host(load(composed(*SLURM, "cluster.layout=single"))) == "127.0.0.1"
    assert meeting_host(load(changed("weights.host=node7", argv=SLURM))) == "node7"
    assert own_host(load(changed("weights.host=node7"))) == "127.0.0.1"
