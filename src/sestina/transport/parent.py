"""What a process that serves another has from it: its end, and no place in an MPI world."""

import ctypes
import os
import signal
import sys

LAUNCHER_PREFIXES = ("PMI", "MPI", "HYDRA_", "OMPI_")
"""What MPI launchers tell a rank by environment; a process that inherited it would look like that rank."""

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends, even in code that never gives Python a turn; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def environment() -> dict[str, str]:
    """Return the environment for such a process: this one's, without the rank it is, and one thread."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
    return kept | {"OMP_NUM_THREADS": "1"}
