"""Where the ranks of a job go: components, each with equal nodes; world ranks count through them in order.

The controller's component is the first one, since its first node also runs the batch script.
"""

from dataclasses import dataclass

from sestina.config.cluster import ClusterConfig
from sestina.config.run import RunConfig
from sestina.transport.messages import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """Nodes of one shape; SLURM gives every component nodes of its own."""

    ranks: tuple[tuple[Role, int], ...]
    """Roles in the order of their ranks, and how many of each."""
    nodes: int
    tasks_per_node: int
    """The last node may have fewer."""
    gpus_per_node: int

    @property
    def tasks(self) -> int:
        """Ranks of all roles."""
        return sum(count for _, count in self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLayout:
    """All of a job."""

    components: tuple[Component, ...]

    @property
    def nodes(self) -> int:
        """Of all components; none is shared."""
        return sum(component.nodes for component in self.components)

    @property
    def tasks(self) -> int:
        """World size."""
        return sum(component.tasks for component in self.components)

    def first_rank(self, number: int) -> int:
        """Return the world rank of a component's first task."""
        return sum(component.tasks for component in self.components[:number])

    def roles(self, number: int) -> str:
        """Return a component's roles as its ranks are told them, each with its first rank: `controller@0,trainer@1`."""
        first, words = self.first_rank(number), list[str]()
        for role, count in self.components[number].ranks:
            words.append(f"{role}@{first}")
            first += count
        return ",".join(words)

    def name(self, rank: int) -> str:
        """Return what to call a world rank in messages, as the ranks themselves do."""
        roles = [role for component in self.components for role, count in component.ranks for _ in range(count)]
        index = roles[:rank].count(roles[rank])
        return f"controller (rank {rank})" if roles[rank] == "controller" else f"{roles[rank]} {index} (rank {rank})"


def layout_of(config: RunConfig, cluster: ClusterConfig) -> JobLayout:
    """Place the ranks of a run; the rules of the configuration have made sure that they fill their nodes."""
    num_instances, num_trainers = config.rollout.num_instances, config.trainer.num_ranks
    per_instance, per_trainer = cluster.rollout_gpus // num_instances, int(cluster.gpus > 0)
    rollout = _fill(cluster, "rollout", num_instances, per_instance)
    trainer = _fill(cluster, "trainer", num_trainers, per_trainer)
    match cluster.layout:
        case "het":
            controller = Component(ranks=(("controller", 1),), nodes=1, tasks_per_node=1, gpus_per_node=0)
            return JobLayout(components=(controller, rollout, trainer))
        case "het-shared":
            shared = Component(
                ranks=(("controller", 1), ("trainer", num_trainers)),
                nodes=trainer.nodes,
                tasks_per_node=trainer.tasks_per_node + 1,
                gpus_per_node=trainer.gpus_per_node,
            )
            return JobLayout(components=(shared, rollout))
        case "single":
            ranks: tuple[tuple[Role, int], ...] = (
                ("controller", 1),
                ("rollout", num_instances),
                ("trainer", num_trainers),
            )
            tasks = sum(count for _, count in ranks)
            one = Component(ranks=ranks, nodes=1, tasks_per_node=tasks, gpus_per_node=cluster.gpus)
            return JobLayout(components=(one,))


def _fill(cluster: ClusterConfig, role: Role, count: int, gpus_each: int) -> Component:
    """Put as many ranks on a node as it has GPUs for; an instance of several nodes has a rank on each."""
    if gpus_each > cluster.gpus_per_node:
        count, gpus_each = count * gpus_each // cluster.gpus_per_node, cluster.gpus_per_node
    per_node = cluster.gpus_per_node // gpus_each if gpus_each else cluster.cpu_ranks_per_node
    per_node = max(1, min(per_node, count))
    return Component(
        ranks=((role, count),),
        nodes=-(-count // per_node),
        tasks_per_node=per_node,
        gpus_per_node=per_node * gpus_each,
    )
