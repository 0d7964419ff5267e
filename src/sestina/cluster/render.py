"""A layout -> the text of a batch script; pure, and without a decision in shell: those are job.py's."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from sestina.cluster.layout import Component, JobLayout
from sestina.config.cluster import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a batch script says beside its layout."""

    name: str
    run_dir: Path
    """Absolute, on a file system that all nodes share."""
    work_dir: Path
    """Where relative paths of the configuration begin."""
    logs: Path
    """A folder."""
    python: str
    environment: dict[str, str]
    """Of every rank."""


def render(job: Job, layout: JobLayout, cluster: ClusterConfig) -> str:
    """Return the text that sbatch is given."""
    parts = [_sbatch([*_of_job(job, cluster), *_of_component(part, cluster)]) for part in layout.components[:1]]
    parts += [_sbatch(_of_component(part, cluster)) for part in layout.components[1:]]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()]
    start = [f"exec {shlex.quote(job.python)} -m sestina.cluster.job {shlex.quote(str(job.run_dir))}"]
    lines = [
        "#!/usr/bin/env bash",
        "\n#SBATCH hetjob\n".join(parts),
        "set -euo pipefail",
        *exports,
        *cluster.setup,
        " \\\n  ".join([*start, *_srun(job, layout, cluster)]),
    ]
    return "\n".join(lines) + "\n"


def _of_job(job: Job, cluster: ClusterConfig) -> list[str]:
    return [
        f"--job-name={job.name}",
        f"--chdir={job.work_dir}",
        f"--output={str(job.logs).replace('%', '%%')}/%j.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{cluster.signal_s}",
    ]


def _of_component(component: Component, cluster: ClusterConfig) -> list[str]:
    """SLURM takes over nothing from one component to the next."""
    named = {"partition": cluster.partition, "account": cluster.account, "qos": cluster.qos}
    return [
        f"--nodes={component.nodes}",
        f"--ntasks={component.tasks}",
        f"--ntasks-per-node={component.tasks_per_node}",
        f"--cpus-per-task={cluster.cpus_per_rank}",
        *([f"--gpus-per-node={component.gpus_per_node}"] if component.gpus_per_node else []),
        f"--time={cluster.limit_min}",
        *(f"--{key}={value}" for key, value in named.items() if value is not None),
        *cluster.options,
    ]


def _sbatch(options: list[str]) -> str:
    return "\n".join(f"#SBATCH {shlex.quote(option)}" for option in options)


def _srun(job: Job, layout: JobLayout, cluster: ClusterConfig) -> list[str]:
    """One step over all components, hence one MPI world; a rank that fails ends it."""
    rank = f"{shlex.quote(job.python)} -m mpi4py -m sestina.controller.rank"
    lines = [f"srun --mpi={cluster.mpi} --export=ALL --kill-on-bad-exit=1"]
    for number, component in enumerate(layout.components):
        group = [f"--het-group={number}"] if len(layout.components) > 1 else []
        size = [f"--nodes={component.nodes}", f"--ntasks={component.tasks}"]
        spread = [f"--ntasks-per-node={component.tasks_per_node}", f"--cpus-per-task={cluster.cpus_per_rank}"]
        end = " :" if number < len(layout.components) - 1 else ""
        lines.append(" ".join([*group, *size, *spread, "--distribution=block"]))
        lines.append(f"  {rank} {layout.roles(number)} {shlex.quote(str(job.run_dir))}{end}")
    return lines
