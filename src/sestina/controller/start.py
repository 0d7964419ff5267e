"""Where a run begins: what its directory holds already, and whether that is of the same configuration."""

from dataclasses import dataclass
from pathlib import Path

from sestina.config.fingerprint import differing_keys, fingerprint
from sestina.config.resolved import read_resolved, write_resolved
from sestina.config.run import RunConfig
from sestina.controller.run_dir import CONFIG, RunDir, step_of
from sestina.core.errors import RunDirError
from sestina.telemetry.metrics import FILE_NAME as METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins."""

    step: int
    """Steps already taken."""
    checkpoint: Path | None
    """What to continue from; None for the initial model."""


def plan(run_dir: RunDir, config: RunConfig) -> Start:
    """Decide where a run of `config` begins; writes nothing.

    Raises RunDirError when the directory cannot be written, holds a run that `resume: never` must not touch, or a
    checkpoint of another configuration.
    """
    run_dir.check_writable()
    if not (run_dir.path / METRICS).exists() and not run_dir.checkpoints():
        return Start(step=0, checkpoint=None)
    if config.resume == "never":
        raise RunDirError(f"{run_dir.path} holds a run; resume=auto continues it, another name or dir starts afresh")
    checkpoints = run_dir.checkpoints()
    found = checkpoints[-1] if checkpoints else run_dir.path
    saved = read_resolved(found / CONFIG)
    if fingerprint(saved) != fingerprint(config):
        differing = "\n".join(f"  {line}" for line in differing_keys(saved, config))
        raise RunDirError(
            f"{found} is of another configuration; with these keys as they were it can be continued, "
            f"with another name or dir a run starts afresh:\n{differing}"
        )
    if not checkpoints:
        return Start(step=0, checkpoint=None)
    return Start(step=step_of(found), checkpoint=found)


def write(run_dir: RunDir, config: RunConfig) -> None:
    """Write the configuration into the directory, which must be held, and forget how a former run ended."""
    write_resolved(config, run_dir.path / CONFIG)
    run_dir.forget_end()
