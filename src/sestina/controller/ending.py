"""How a rank of a job ends when another one has failed.

SLURM sends SIGTERM then, and SIGKILL only KillWait later, 30 s by default. It sends SIGTERM also before it takes nodes
back, when ranks must stay until the run has been saved. So a rank ignores the signal, but from then on reads the file
in which the job's process says that all is over.
"""

import os
import signal
import time
from pathlib import Path
from threading import Thread

from sestina.core.seconds import Seconds

OVER = "over"
"""What the file of wishes (run_dir.STOP) then holds."""
LOOK_S: Seconds = 0.2
_EXIT_CODE = 128 + signal.SIGTERM


def end_when_over(path: Path) -> None:
    """Ignore SIGINT and SIGTERM, and end this process once the file says so after a SIGTERM; called by a main thread.

    A thread waits, since the main one may be in a collective that others have left.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    Thread(target=_watch, args=(read_end, path), daemon=True).start()


def end_if_over(path: Path) -> None:
    """End this process if the file says so."""
    if path.exists() and path.read_text(encoding="utf-8") == OVER:
        os._exit(_EXIT_CODE)


def _watch(signalled: int, path: Path) -> None:
    os.read(signalled, 1)
    while True:
        end_if_over(path)
        time.sleep(LOOK_S)
