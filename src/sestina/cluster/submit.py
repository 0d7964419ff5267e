"""Runs as jobs: check all of them, then write and submit each."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from sestina.cluster.files import DRY, FOLDER, NUMBER, SCRIPT, log_of
from sestina.cluster.layout import JobLayout, layout_of
from sestina.cluster.nodes import check_nodes
from sestina.cluster.render import Job, render
from sestina.cluster.slurm import nodes_of, state_of, submit
from sestina.config.cluster import ClusterConfig
from sestina.config.run import RunConfig
from sestina.config.sweep import numbered
from sestina.controller import start
from sestina.controller.preflight import Preflight, inspect
from sestina.controller.run_dir import RunDir
from sestina.controller.world_process import rank_environment
from sestina.core.errors import ConfigError, RunDirError


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that could be a job."""

    config: RunConfig
    layout: JobLayout
    script: str
    found: Preflight
    """Nothing wrong, but maybe something that is not here, or that no part of this system carries out."""
    finished: bool
    """It has taken all its steps; there is nothing to submit."""

    @property
    def folder(self) -> Path:
        """Where the script and the logs lie."""
        return self.config.dir.absolute() / FOLDER


def plan_jobs(configs: Sequence[RunConfig]) -> list[Plan]:
    """Check every run and render its job; writes nothing. Raises ConfigError with all that is wrong with them."""
    clusters = [_cluster(config) for config in configs]
    found = [inspect(config) for config in configs]
    if any(each.wrong for each in found):
        raise ConfigError(numbered([each.violations for each in found]))
    return [_plan(*run) for run in zip(configs, clusters, found, strict=True)]


def submit_jobs(plans: Sequence[Plan], console: Console) -> None:
    """Write and submit every job; raises a UserError before the first one when one of them cannot be run."""
    refused = [[] if plan.finished else plan.found.violations for plan in plans]
    if any(refused):
        raise ConfigError(numbered(refused))
    for plan in plans:
        if plan.finished:
            steps = plan.config.run.steps
            console.print(f"{plan.config.dir} has taken all {steps} steps already; raise run.steps to go on")
    plans = [plan for plan in plans if not plan.finished]
    nodes = {partition: nodes_of(partition) for partition in {_cluster(plan.config).partition for plan in plans}}
    for plan in plans:
        cluster = _cluster(plan.config)
        check_nodes(plan.layout, cluster, nodes[cluster.partition])
        _check_queue(plan)
    for plan in plans:
        job = _submit(plan)
        console.print(f"job {job}: {plan.config.name}, {plan.layout.tasks} ranks on {plan.layout.nodes} nodes")
        console.print(f"  run directory {plan.config.dir}, log {log_of(plan.config.dir, job)}")


def job_environment(config: RunConfig, cluster: ClusterConfig) -> dict[str, str]:
    """Return what every rank of a job needs; pure."""
    # MPICH names its shared memory after job and step. A killed start leaves it behind, and the next start of the same
    # job waits in it for ever. Messages are small, and need none.
    mpi = {"MPIR_CVAR_NOLOCAL": "1"}
    names = () if cluster.interface is None else ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return rank_environment(config) | mpi | dict.fromkeys(names, cluster.interface or "")


def _plan(config: RunConfig, cluster: ClusterConfig, found: Preflight) -> Plan:
    finished = start.plan(RunDir(config.dir), config).step >= config.run.steps
    layout = layout_of(config, cluster)
    run_dir = config.dir.absolute()
    job = Job(
        name=config.name,
        run_dir=run_dir,
        work_dir=Path.cwd(),
        logs=run_dir / FOLDER,
        python=cluster.python or sys.executable,
        environment=job_environment(config, cluster),
    )
    script = render(job, layout, cluster)
    return Plan(config=config, layout=layout, script=script, found=found, finished=finished)


def _submit(plan: Plan) -> int:
    run_dir = RunDir(plan.config.dir)
    run_dir.hold()
    start.write(run_dir, plan.config)
    run_dir.release()  # the controller holds it from here on
    shutil.rmtree(plan.folder / DRY, ignore_errors=True)
    plan.folder.mkdir(exist_ok=True)
    script = plan.folder / SCRIPT
    script.write_text(plan.script, encoding="utf-8")
    job = submit(script)
    (plan.folder / NUMBER).write_text(f"{job}\n", encoding="utf-8")
    return job


def _check_queue(plan: Plan) -> None:
    """The lock keeps out only runs that have started."""
    path = plan.folder / NUMBER
    if path.exists() and (state := state_of(int(path.read_text(encoding="utf-8")))) is not None:
        job = path.read_text(encoding="utf-8").strip()
        raise RunDirError(
            f"{plan.config.dir} has a job already: {job}, {state}; `scancel {job}`, or choose another dir"
        )


def _cluster(config: RunConfig) -> ClusterConfig:
    if config.cluster is None:
        raise ConfigError(["cluster: null is not allowed for a job; choose cluster=cpu or cluster=gpu, or use --local"])
    return config.cluster
