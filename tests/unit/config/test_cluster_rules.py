import pytest

from sestina.config.fingerprint import fingerprint
from sestina.config.load import load
from sestina.config.resolved import read_resolved, write_resolved
from tests.unit.cluster.jobs import FEW_GPUS, GPUS, SLURM
from tests.unit.config.helpers import changed, violations

SPLIT = "cluster.split.rollout 3, cluster.split.trainer 1"

BROKEN = [
    (GPUS, ["cluster.gpus=30"], f"cluster.gpus: 30 is not allowed with {SPLIT}; a multiple of 4"),
    (
        GPUS,
        ["rollout.num_instances=9"],
        f"rollout.num_instances: 9 is not allowed with cluster.gpus 32, {SPLIT}; a divisor of 24, the GPUs for rollout",
    ),
    (
        GPUS,
        ["rollout.num_instances=8"],
        f"rollout.num_instances: 8 is not allowed with cluster.gpus_per_node 8, cluster.gpus 32, {SPLIT}; "
        "so many that the GPUs of one, now 3, divide a node's 8",
    ),
    (
        GPUS,
        ["trainer.num_ranks=4"],
        f"trainer.num_ranks: 4 is not allowed with cluster.gpus 32, {SPLIT}; "
        "8, one rank for each of the trainer's GPUs",
    ),
    (
        GPUS,
        ["cluster.gpus=48", "rollout.num_instances=36", "trainer.num_ranks=12"],
        f"cluster.gpus: 48 is not allowed with cluster.gpus_per_node 8, {SPLIT}, cluster.layout 'het'; "
        "so many that rollout and trainer, now 36 and 12, fill their nodes",
    ),
    (
        FEW_GPUS,
        ["cluster.layout=single", "cluster.gpus_per_node=4"],
        f"cluster.gpus: 8 is not allowed with cluster.gpus_per_node 4, {SPLIT}, cluster.layout 'single'; "
        "at most 4: there is one node",
    ),
    (
        SLURM,
        ["trainer.device=cuda", "rollout.engine.device=cuda"],
        "trainer.device: 'cuda' is not allowed with cluster.gpus 0; 'cpu', or cluster.gpus above 0",
    ),
    (
        GPUS,
        ["trainer.device=cpu", "rollout.engine.device=cpu"],
        "trainer.device: 'cpu' is not allowed with cluster.gpus 32; 'cuda', or cluster.gpus 0",
    ),
    (
        SLURM,
        ["cluster.layout=het-shared", "trainer.num_ranks=2"],
        "cluster.layout: 'het-shared' is not allowed with trainer.num_ranks 2, cluster.gpus 0, "
        "cluster.gpus_per_node 8, cluster.cpu_ranks_per_node 1; 'het', or trainer ranks that fit one node",
    ),
    (
        SLURM,
        ["cluster.signal_s=3600"],
        "cluster.signal_s: 3600 is not allowed with cluster.limit_min 60; below 3600, the seconds of the whole job",
    ),
    (
        SLURM,
        ["cluster.interface=lo"],
        "cluster.interface: 'lo' is not allowed with cluster.layout 'het'; null, or one that other nodes reach",
    ),
    (
        SLURM,
        ["weights.host=127.0.0.1"],
        "weights.host: '127.0.0.1' is not allowed with cluster.layout 'het'; null, or one that other nodes reach",
    ),
]


@pytest.mark.parametrize(("argv", "changes", "line"), BROKEN)
def test_a_broken_rule_states_its_keys_their_values_and_what_is_allowed(argv, changes, line):
    assert line in violations(*changes, argv=argv)


@pytest.mark.parametrize(
    ("argv", "changes"),
    [
        (GPUS, []),
        (GPUS, ["rollout.num_instances=12"]),
        (GPUS, ["rollout.num_instances=3"]),
        (FEW_GPUS, []),
        (FEW_GPUS, ["cluster.layout=single"]),
        (FEW_GPUS, ["rollout.num_instances=1"]),
        (SLURM, ["cluster.layout=single", "cluster.interface=lo", "weights.host=127.0.0.1"]),
        (SLURM, ["cluster.layout=het-shared"]),
        (SLURM, ["cluster=null", "weights.host=127.0.0.1"]),
    ],
)
def test_what_the_rules_still_allow(argv, changes):
    load(changed(*changes, argv=argv))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("cluster.layout=hetero", "'hetero' is not allowed; one of 'het', 'het-shared', 'single'"),
        ("cluster.mpi=mpich", "'mpich' is not allowed; one of 'pmi2', 'pmix'"),
        ("cluster.signal_s=0", "0 is not allowed; a whole number from 1 to 65535"),
        ("cluster.limit_min=0", "0 is not allowed; a whole number of at least 1"),
        ("cluster.options=--exclusive", "'--exclusive' is not allowed; a list, each item text of at least 1 character"),
        ("cluster.partition=''", "'' is not allowed; text of at least 1 character or null"),
        ("cluster.split=3", "3 is not allowed; a section with rollout, trainer"),
        ("cluster.partitoin=gpu", "unknown key; did you mean 'cluster.partition'?"),
    ],
)
def test_a_bad_value_is_told_what_is_allowed(change, line):
    assert violations(change, argv=SLURM) == [f"{change.partition('=')[0]}: {line}"]


def test_a_cluster_that_is_no_section_is_refused():
    (line,) = violations("cluster=3", argv=SLURM)
    assert line.startswith("cluster: 3 is not allowed; a section with layout, gpus,")
    assert line.endswith("or null")


def test_lists_survive_the_run_directory(tmp_path):
    config = load(changed("cluster.options=[--exclusive, --mem=0]", "cluster.setup=[module load x]", argv=SLURM))
    write_resolved(config, tmp_path / "config.yaml")
    assert read_resolved(tmp_path / "config.yaml") == config
    assert config.cluster.options == ("--exclusive", "--mem=0")


def test_a_run_may_move_between_a_machine_and_a_cluster():
    assert fingerprint(load(changed(argv=SLURM))) == fingerprint(load(changed("cluster=null", argv=SLURM)))
