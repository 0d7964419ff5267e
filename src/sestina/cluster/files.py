"""What lies in the run directory of a run that is a job: slurm/{job.sh, job, 12.log, dry-run/}."""

from pathlib import Path

FOLDER, SCRIPT, NUMBER, DRY = "slurm", "job.sh", "job", "dry-run"
"""A folder, and in it the script, the number of the last job, what a dry run writes."""


def log_of(run_dir: Path, job: int) -> Path:
    """Return the file that a job and all its ranks print to."""
    return run_dir / FOLDER / f"{job}.log"
