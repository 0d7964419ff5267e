"""The commands of SLURM that are called, each with a time limit."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sestina.core.errors import UserError
from sestina.core.seconds import Seconds

LIMIT_S: Seconds = 60.0
"""SLURM's own commands give up on a controller that does not answer after about 10 s."""

_LEFT = ("SLURM_", "SBATCH_", "PMI_", "PMIX_")
_KEPT = ("SLURM_CONF",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a partition."""

    name: str
    cpus: int
    gpus: int


def submit(script: Path) -> int:
    """Queue a batch script and return the job's number; raises UserError with what sbatch has against it."""
    return int(_run(["sbatch", "--parsable", str(script)]).partition(";")[0])


def nodes_of(partition: str | None) -> list[Node]:
    """Return all nodes of a partition (None: the default one), in whatever state.

    Raises UserError when no partition is named so.
    """
    listed = [line.split("|") for line in _run(["sinfo", "-h", "-N", "-o", "%N|%P|%c|%G"]).splitlines()]
    named = [
        line for line in listed if (line[1].endswith("*") if partition is None else line[1].rstrip("*") == partition)
    ]
    if not named:
        known = ", ".join(sorted({line[1].rstrip("*") for line in listed}))
        raise UserError(f"cluster.partition: {partition!r} is no partition of this cluster; it has {known}")
    return [Node(name=name, cpus=int(cpus.rstrip("+")), gpus=_gpus_in(gres)) for name, _, cpus, gres in named]


def state_of(job: int) -> str | None:
    """Return the state of a job that is queued, runs or ends; None for any other."""
    try:
        states = _run(["squeue", "-h", "-j", str(job), "-o", "%T"]).split()
    except UserError:
        return None  # SLURM has forgotten it
    return states[0] if states else None


def requeue(job: int) -> None:
    """Have a running job ended and queued again under its number; raises UserError when SLURM refuses."""
    _run(["scontrol", "requeue", str(job)])


def _run(command: Sequence[str]) -> str:
    # A job that is submitted from within a job is to inherit nothing from that.
    environment = {name: v for name, v in os.environ.items() if name in _KEPT or not name.startswith(_LEFT)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed here; submit where SLURM's commands are") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"waited {LIMIT_S:g} s for {command[0]}: SLURM does not answer") from None
    if done.returncode:
        raise UserError(f"{' '.join(command[:2])}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _gpus_in(gres: str) -> int:
    """Count the GPUs of `gpu:h100:4(S:0-1),nvme:1`."""
    entries = [entry.partition("(")[0].split(":") for entry in gres.split(",")]
    return sum(int(entry[-1]) for entry in entries if entry[0] == "gpu" and entry[-1].isdigit())
