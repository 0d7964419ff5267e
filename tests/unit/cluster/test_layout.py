from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sestina.cluster.layout import layout_of
from sestina.cluster.nodes import check_nodes
from sestina.cluster.slurm import Node, _gpus_in
from sestina.config.cluster import SplitConfig
from sestina.config.devices import gpus_of
from sestina.config.load import load
from sestina.config.resolved import as_flat_dict
from sestina.config.rules import broken_rules
from sestina.core.errors import ConfigError
from sestina.transport.world import role_at
from tests.unit.cluster.jobs import GPUS, SLURM
from tests.unit.config.helpers import composed

CPU, GPU = load(composed(*SLURM)), load(composed(*GPUS))
LAYOUTS = st.sampled_from(["het", "het-shared", "single"])


def changed(config, *, num_instances, num_ranks, **cluster):
    return replace(
        config,
        rollout=replace(config.rollout, num_instances=num_instances),
        trainer=replace(config.trainer, num_ranks=num_ranks),
        cluster=replace(config.cluster, **cluster),
    )


def admitted(run):
    """Let a run through if the rules of the configuration do."""
    assume(not broken_rules(as_flat_dict(run)))
    return run


@st.composite
def cpu_runs(draw):
    counts = {key: draw(st.integers(1, 40)) for key in ("num_instances", "num_ranks", "cpu_ranks_per_node")}
    return admitted(changed(CPU, layout=draw(LAYOUTS), **counts))


@st.composite
def gpu_runs(draw):
    split = SplitConfig(rollout=draw(st.integers(1, 4)), trainer=draw(st.integers(1, 3)))
    share = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    rollout = split.rollout * share
    num_instances = draw(st.sampled_from([n for n in range(1, rollout + 1) if rollout % n == 0]))
    run = changed(
        GPU,
        num_instances=num_instances,
        num_ranks=split.trainer * share,
        gpus=(split.rollout + split.trainer) * share,
        gpus_per_node=draw(st.sampled_from([1, 2, 4, 8])),
        split=split,
        layout=draw(LAYOUTS),
    )
    return admitted(run)


RUNS = st.one_of(cpu_runs(), gpu_runs())


def nodes_of_an_instance(run):
    """An instance of several nodes has a rank on each."""
    gpus = run.cluster.rollout_gpus // run.rollout.num_instances
    return max(1, gpus // run.cluster.gpus_per_node)


@given(RUNS)
def test_every_rank_has_one_place_and_one_role(run):
    layout = layout_of(run, run.cluster)
    roles = [
        role_at(layout.roles(number), rank)
        for number, part in enumerate(layout.components)
        for rank in range(layout.first_rank(number), layout.first_rank(number) + part.tasks)
    ]
    assert len(roles) == layout.tasks
    assert roles[0] == "controller"
    assert (roles.count("controller"), roles.count("rollout"), roles.count("trainer")) == (
        1,
        run.rollout.num_instances * nodes_of_an_instance(run),
        run.trainer.num_ranks,
    )
    assert [layout.name(rank).split()[0] for rank in range(layout.tasks)] == roles
    assert len({layout.name(rank) for rank in range(layout.tasks)}) == layout.tasks


@given(RUNS)
def test_nodes_are_as_many_as_needed_and_not_one_more(run):
    layout = layout_of(run, run.cluster)
    for part in layout.components:
        assert part.nodes * part.tasks_per_node >= part.tasks
        assert (part.nodes - 1) * part.tasks_per_node < part.tasks
        assert part.gpus_per_node <= run.cluster.gpus_per_node
    assert len(layout.components) == {"het": 3, "het-shared": 2, "single": 1}[run.cluster.layout]
    assert sum(part.nodes * part.gpus_per_node for part in layout.components) == run.cluster.gpus


@given(gpu_runs())
def test_no_gpu_has_two_owners_and_none_is_idle(run):
    layout, cluster = layout_of(run, run.cluster), run.cluster
    taken = []
    for number, part in enumerate(layout.components):
        seen = {"rollout": 0, "trainer": 0}
        for task in range(part.tasks):
            role = role_at(layout.roles(number), layout.first_rank(number) + task)
            if role == "controller":
                continue
            node = task // part.tasks_per_node
            mine = gpus_of(cluster, role, seen[role], run.rollout.num_instances)
            seen[role] += 1
            assert mine.stop <= part.gpus_per_node
            taken += [(number, node, gpu) for gpu in mine]
    assert len(taken) == len(set(taken)) == cluster.gpus


NODES = [Node(name=f"n{number}", cpus=8, gpus=4) for number in range(5)]


def refused(run, nodes):
    with pytest.raises(ConfigError) as error:
        check_nodes(layout_of(run, run.cluster), run.cluster, nodes)
    return error.value.violations


def test_nodes_that_are_missing_are_named_with_the_keys_to_change():
    check_nodes(layout_of(CPU, CPU.cluster), CPU.cluster, NODES)
    assert refused(CPU, NODES[:4]) == [
        "cluster.layout: 'het' needs 5 nodes (controller 1, rollout 3, trainer 1), the default partition has 4; "
        "change cluster.layout, cluster.cpu_ranks_per_node or cluster.partition"
    ]
    crowded = replace(CPU, cluster=replace(CPU.cluster, layout="single", partition="main", cpus_per_rank=2))
    assert refused(crowded, NODES) == [
        "cluster.cpus_per_rank: the controller+rollout+trainer component needs 1 nodes with 10 CPUs and 0 GPUs, "
        "partition 'main' has 0 such nodes"
    ]
    assert len(refused(GPU, [Node(name=f"n{number}", cpus=64, gpus=4) for number in range(9)])) == 2


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gpu:h100:4(S:0-1)", 4), ("gpu:8", 8), ("(null)", 0), ("nvme:1,gpu:a:2,gpu:b:2", 4), ("gpu", 0)],
)
def test_gpus_of_a_node(gres, count):
    assert _gpus_in(gres) == count
