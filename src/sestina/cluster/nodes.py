"""Whether a cluster has the nodes for a layout: SLURM queues a job whose components never fit together."""

from collections.abc import Sequence

from sestina.cluster.layout import Component, JobLayout
from sestina.cluster.slurm import Node
from sestina.config.cluster import ClusterConfig
from sestina.core.errors import ConfigError


def check_nodes(layout: JobLayout, cluster: ClusterConfig, nodes: Sequence[Node]) -> None:
    """Raise ConfigError when the components cannot all have nodes of their own; pure."""
    partition = f"partition {cluster.partition!r}" if cluster.partition else "the default partition"
    wrong: list[str] = []
    if layout.nodes > len(nodes):
        parts = ", ".join(f"{_named(part)} {part.nodes}" for part in layout.components)
        wrong.append(
            f"cluster.layout: {cluster.layout!r} needs {layout.nodes} nodes ({parts}), {partition} has {len(nodes)}; "
            f"change cluster.layout, {'cluster.gpus' if cluster.gpus else 'cluster.cpu_ranks_per_node'} "
            "or cluster.partition"
        )
    for part in layout.components:
        cpus, gpus = part.tasks_per_node * cluster.cpus_per_rank, part.gpus_per_node
        fitting = [node for node in nodes if node.cpus >= cpus and node.gpus >= gpus]
        if part.nodes > len(fitting):
            keys = "cluster.cpus_per_rank, cluster.gpus_per_node" if gpus else "cluster.cpus_per_rank"
            wrong.append(
                f"{keys}: the {_named(part)} component needs {part.nodes} nodes with {cpus} CPUs and {gpus} GPUs, "
                f"{partition} has {len(fitting)} such nodes"
            )
    if wrong:
        raise ConfigError(wrong)


def _named(component: Component) -> str:
    return "+".join(role for role, _ in component.ranks)
