"""The run directory: where everything of a run lies, who holds it, and what it holds already.

config.yaml  metrics.jsonl  journal.jsonl  status.json  traces/  wandb/  summary.png
stop  failures/  unfinished.msgpack  draft/  slurm/{job.sh, job, 12.log}
history/  (draft=history: what memory does not hold)
checkpoints/step_000010/{controller.json, config.yaml, history, trainer/, model/}
"""

import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path

from sestina.core.errors import RunDirError

CONFIG, STATUS, JOURNAL, SUMMARY = "config.yaml", "status.json", "journal.jsonl", "summary.png"
STOP, FAILURES, LOGS, UNFINISHED = "stop", "failures", "logs", "unfinished.msgpack"
HISTORY, DRAFT = "history", "draft"
_LOCK, _CHECKPOINTS, _STEP = "lock", "checkpoints", "step_"


class RunDir:
    """A run directory; nothing is created before `create`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def file(self, name: str) -> Path:
        """Return the path of one of the files named in this module."""
        return self.path / name

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

    def check_writable(self) -> None:
        """Raise RunDirError when nothing can be written there."""
        nearest = self.path
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            raise RunDirError(f"{self.path}: {nearest} is not a directory")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise RunDirError(f"{self.path}: {nearest} is not writable")


def holder(path: Path) -> str | None:
    """Return who holds a run directory, "unknown" when nobody says; None when no run does."""
    try:
        lock = os.open(path / _LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
            return None  # a file system without locks has kept nobody out
        return os.pread(lock, 256, 0).decode() or "unknown"
    finally:
        os.close(lock)
    return None


def _whoami() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    return f"pid {os.getpid()} on {socket.gethostname()}" + (f", job {job}" if job else "")


def step_of(checkpoint: Path) -> int:
    """Return after how many steps a checkpoint was made."""
    return int(checkpoint.name.removeprefix(_STEP))
