"""What a user sets about a cluster: where the ranks of a run go, and how SLURM is asked for the nodes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sestina.core.ranges import Count, CountOrNone, Positive, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """How GPUs are shared, as a ratio."""

    rollout: Count
    trainer: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One job: its nodes, its time, its MPI."""

    layout: Literal["het", "het-shared", "single"]
    """het: the controller has a node of its own. het-shared: it is beside the first trainer rank. single: one node."""
    gpus: CountOrNone
    """Of rollout and trainer together; 0: a run on CPUs."""
    gpus_per_node: Count
    gpu_memory_gib: Positive
    """Of one GPU."""
    split: SplitConfig
    cpu_ranks_per_node: Count
    """Where there are no GPUs to decide it; `single` ignores it."""
    cpus_per_rank: Count
    limit_min: Count
    """Time limit of the job, in minutes."""
    signal_s: Annotated[int, Ge(1), Le(65535)]
    """How long before the limit the run is asked to save, leave and queue again."""
    mpi: Literal["pmi2", "pmix"]
    """What srun and the installed MPI share: pmi2 for MPICH, pmix for Open MPI."""
    interface: Text | None
    """Network interface between nodes; null: the one that the node's name belongs to."""
    partition: Text | None
    account: Text | None
    qos: Text | None
    options: tuple[Text, ...]
    """More options of sbatch, for every component of the job."""
    setup: tuple[Text, ...]
    """Lines of shell before the ranks start."""
    python: Text | None
    """Interpreter on the nodes; null: the one that submits."""

    @property
    def rollout_gpus(self) -> int:
        """GPUs of all instances."""
        return self.gpus * self.split.rollout // (self.split.rollout + self.split.trainer)

    @property
    def trainer_gpus(self) -> int:
        """GPUs of all trainer ranks."""
        return self.gpus - self.rollout_gpus
