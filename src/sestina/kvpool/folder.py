"""A folder that processes share and that does not outlive them.

Each of them holds a shared lock on the folder's file `alive` for as long as it lives, which the kernel takes back
however it ends. Who gets the lock for itself alone knows that nobody is left, and removes the folder: the last one that
closes it, the launcher when all ranks have ended, or whoever opens a folder beside it later.
"""

import fcntl
import os
import shutil
import time
from pathlib import Path

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds

PREFIX = "sestina-kv-"
OPEN_S: Seconds = 10.0
"""For others to be done with removing a former folder of the same name."""
_ALIVE = "alive"
_LOOK_S: Seconds = 0.01


class Folder:
    """One process's hold on a shared folder."""

    def __init__(self, parent: Path, name: str) -> None:
        """Make the folder or join it; raises OSError where nothing can be written, DeadlineError."""
        self.path = parent / f"{PREFIX}{name}"
        sweep(parent)
        deadline = time.monotonic() + OPEN_S
        while (alive := self._join()) is None:
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self.path} to be there", OPEN_S)
            time.sleep(_LOOK_S)
        self._alive = alive

    def close(self) -> None:
        """Let go; the last one removes the folder."""
        os.close(self._alive)
        _remove_if_dead(self.path)

    def _join(self) -> int | None:
        """Return a lock that is held; None when the folder was removed at the same moment."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            alive = os.open(self.path / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(alive).st_ino == os.stat(self.path / _ALIVE).st_ino:
                return alive
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(alive)
        return None


def sweep(parent: Path) -> None:
    """Remove the folders of processes that have ended without doing so."""
    for path in parent.glob(f"{PREFIX}*"):
        _remove_if_dead(path)


def clear(parent: Path, name: str, limit_s: Seconds) -> bool:
    """Return whether a folder is gone within `limit_s`: its processes are ending, and it is removed when they have."""
    deadline = time.monotonic() + limit_s
    while not _remove_if_dead(parent / f"{PREFIX}{name}"):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _remove_if_dead(path: Path) -> bool:
    """Return whether the folder is not there, or nobody held it, so that it has been removed."""
    try:
        alive = os.open(path / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # of another user, whose runs see to it, or on a disk that is read-only
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Renamed first: who opens the folder meanwhile makes a new one, and nothing of that is removed.
        gone = path.with_name(f"{PREFIX}removed-{os.getpid()}-{time.monotonic_ns()}")
        path.rename(gone)
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(alive)
    shutil.rmtree(gone, ignore_errors=True)  # another process may be at it too; what is left goes at the next sweep
    return True
