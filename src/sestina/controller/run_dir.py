"""The run directory: where everything of a run lies, who holds it, and what it holds already.

config.yaml  metrics.jsonl  journal.jsonl  status.json  traces/  wandb/  summary.png
stop  failures/  slurm/{job.sh, job, 12.log}
checkpoints/step_000010/{controller.json, config.yaml, trainer/, model/}
"""

import errno
import fcntl
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from sestina.config.fingerprint import differing_keys, fingerprint
from sestina.config.resolved import read_resolved, write_resolved
from sestina.config.run import RunConfig
from sestina.core.errors import RunDirError
from sestina.telemetry.metrics import FILE_NAME as METRICS

CONFIG, STATUS, JOURNAL, SUMMARY = "config.yaml", "status.json", "journal.jsonl", "summary.png"
STOP, FAILURES, LOGS = "stop", "failures", "logs"
_LOCK, _CHECKPOINTS, _STEP = "lock", "checkpoints", "step_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins."""

    step: int
    """Steps already taken."""
    checkpoint: Path | None
    """What to continue from; None for the initial model."""


class RunDir:
    """A run directory; nothing is created before `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def file(self, name: str) -> Path:
        """Return the path of one of the files named in this module."""
        return self.path / name

    def plan(self, config: RunConfig) -> Start:
        """Decide where a run of `config` begins; writes nothing.

        Raises RunDirError when the directory cannot be written, holds a run that `resume: never` must not touch, or a
        checkpoint of another configuration.
        """
        self._check_writable()
        if not (self.path / METRICS).exists() and not self.checkpoints():
            return Start(step=0, checkpoint=None)
        if config.resume == "never":
            raise RunDirError(f"{self.path} holds a run; resume=auto continues it, another name or dir starts afresh")
        checkpoints = self.checkpoints()
        found = checkpoints[-1] if checkpoints else self.path
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

    def write(self, config: RunConfig) -> None:
        """Write the configuration into the directory, which must be held, and forget how a former run ended."""
        write_resolved(config, self.path / CONFIG)
        self.forget_end()

    def forget_end(self) -> None:
        """Remove the status, the failures and the wish to stop of a former run.

        The file of wishes stays, empty: a file system shared by nodes may remember for half a minute that a file was
        not there, but shows what an existing one holds to whoever opens it anew.
        """
        self.file(STATUS).unlink(missing_ok=True)
        shutil.rmtree(self.file(FAILURES), ignore_errors=True)
        self.file(STOP).write_bytes(b"")

    def hold(self) -> None:
        """Make the directory and keep other runs out until this process ends; raises RunDirError when one is in."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 256, 0).decode() or "unknown"
            os.close(self._lock)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise RunDirError(f"{self.path}: its file system cannot lock files: {error.strerror}") from None
            raise RunDirError(f"{self.path} is held by a live run ({holder}); stop it, or choose another dir") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, _whoami().encode(), 0)

    def release(self) -> None:
        """Let other runs in."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def checkpoints(self) -> list[Path]:
        """Return complete checkpoints, oldest first."""
        found = (self.path / _CHECKPOINTS).glob(f"{_STEP}*")
        return sorted(path for path in found if path.name.removeprefix(_STEP).isdigit())

    def checkpoint(self, step: int) -> Path:
        """Return where the checkpoint of a step belongs."""
        return self.path / _CHECKPOINTS / f"{_STEP}{step:06d}"

    def _check_writable(self) -> None:
        nearest = self.path
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            raise RunDirError(f"{self.path}: {nearest} is not a directory")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise RunDirError(f"{self.path}: {nearest} is not writable")


def _whoami() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    return f"pid {os.getpid()} on {socket.gethostname()}" + (f", job {job}" if job else "")


def step_of(checkpoint: Path) -> int:
    """Return after how many steps a checkpoint was made."""
    return int(checkpoint.name.removeprefix(_STEP))
