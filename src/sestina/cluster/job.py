"""The batch script's one process: python -m sestina.cluster.job RUN_DIR srun ...

Starts the ranks, and lets the run leave with a checkpoint when SLURM says that time is up (USR1) or that the nodes are
wanted (TERM): it is queued again then, under the same number, until it has taken all its steps. Ends with the exit code
of the rank that failed first, and names it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread, Timer

from sestina.cluster.complaints import is_end
from sestina.cluster.files import log_of
from sestina.cluster.slurm import requeue, state_of
from sestina.controller.ending import OVER
from sestina.controller.run_dir import STOP, RunDir
from sestina.core.errors import SestinaError
from sestina.core.seconds import Seconds

REPORT_S: Seconds = 1.0
"""For ranks that failed with the first one to say why; SLURM would give them its KillWait, 30 s by default."""

_WHY = {signal.SIGUSR1: "the job's time is nearly up", signal.SIGTERM: "SLURM wants the nodes back"}


class Step:
    """The ranks, as one srun; what it says of them is passed on and kept."""

    def __init__(self, command: Sequence[str], on_end: Callable[[], object]) -> None:
        """`on_end` is called a moment after srun has said that the step cannot go on."""
        # In a group of its own: what is meant for this process must not reach the ranks' processes through srun.
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", process_group=0)
        self.said: list[str] = []
        """Its own complaints, in order."""
        self._on_end = on_end
        self._ending: Timer | None = None
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self) -> int:
        """Return srun's exit code; SLURM's time limit is the deadline."""
        code = self._process.wait()
        self._reader.join(timeout=5)
        if self._ending is not None:
            self._ending.cancel()
        return code if code >= 0 else 128 - code

    def _read(self) -> None:
        assert self._process.stderr is not None, "stderr was not piped"
        for line in self._process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            if line.startswith("srun: "):
                self.said.append(line.rstrip("\n"))
                if is_end(line) and self._ending is None:
                    self._ending = Timer(REPORT_S, self._on_end)
                    self._ending.daemon = True
                    self._ending.start()


def main(argv: Sequence[str]) -> int:
    """Run a job to its end; returns the exit code of the batch script."""
    run_dir, command = RunDir(Path(argv[0])), argv[1:]
    run_dir.forget_end()
    saved = run_dir.checkpoints()
    asked: list[signal.Signals] = []

    def ask(number: int, _: object) -> None:
        asked.append(signal.Signals(number))
        run_dir.file(STOP).write_text(_WHY[asked[0]], encoding="utf-8")

    for number in _WHY:
        signal.signal(number, ask)
    step = Step(command, lambda: run_dir.file(STOP).write_text(OVER, encoding="utf-8"))
    code = step.wait()
    # Nodes that were wanted by others are no reason to give up; a limit that no step fits into is.
    moved = run_dir.checkpoints() != saved or signal.SIGTERM in asked
    from sestina.cluster.end import judge_end  # noqa: PLC0415 - reading configurations takes longer than starting ranks

    verdict = judge_end(run_dir, step.said, code, asked=bool(asked), moved=moved)
    _say(verdict.said if verdict.exit_code == 0 else f"{verdict.said} (log: {_log(run_dir)})")
    return _queue_again(verdict.exit_code) if verdict.again else verdict.exit_code


def _log(run_dir: RunDir) -> Path:
    return log_of(run_dir.path, int(os.environ["SLURM_JOB_ID"]))


def _queue_again(exit_code: int) -> int:
    """A job that is being cancelled is left alone: its state says so by now."""
    job = int(os.environ["SLURM_JOB_ID"])
    state = state_of(job)
    if state != "RUNNING":
        _say(f"job {job} is {state or 'gone'}, and is not queued again")
        return exit_code
    requeue(job)
    _say(f"job {job} is queued again, and goes on from its checkpoint")
    return exit_code


def _say(text: str) -> None:
    job, restarts = os.environ.get("SLURM_JOB_ID", "?"), os.environ.get("SLURM_RESTART_COUNT", "0")
    sys.stderr.write(f"job {job}, start {int(restarts) + 1}: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SestinaError as error:
        _say(str(error))
        sys.exit(error.exit_code)
