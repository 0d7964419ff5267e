"""Starts all ranks of a run on this machine as one MPI world, and watches it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from sestina.config.run import RunConfig
from sestina.core.errors import UserError
from sestina.core.units import Seconds


def world_command(config: RunConfig, *, quiet: bool) -> list[str]:
    """Return the mpiexec call for one controller, all rollout and all trainer ranks; pure."""
    rank = [sys.executable, "-m", "mpi4py", "-m", "sestina.controller.rank"]
    run_dir = str(config.dir)
    controller = ["-n", "1", *rank, "controller", run_dir, *(["--quiet"] if quiet else [])]
    rollouts = ["-n", str(config.rollout.num_instances), *rank, "rollout", run_dir]
    trainers = ["-n", str(config.trainer.num_ranks), *rank, "trainer", run_dir]
    # Left to itself mpiexec ends all ranks when one dies, and nobody can tell which: the launcher does that instead.
    return [_mpiexec(), "-disable-auto-cleanup", *controller, ":", *rollouts, ":", *trainers]


def world_environment(config: RunConfig) -> dict[str, str]:
    """Return this environment for ranks of this machine alone."""
    # In a job's environment mpiexec would start ranks on the job's nodes, through srun.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI_", "PMIX_"))}
    # All ranks are on this machine: nothing needs to listen beyond it.
    return {**own, **rank_environment(config), "GLOO_SOCKET_IFNAME": "lo", "HYDRA_IFACE": "lo"}


def rank_environment(config: RunConfig) -> dict[str, str]:
    """Return what every rank needs: one thread, since ranks share cores and threads that wait for others spin; pure."""
    fixed = {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1", "PYTHONUNBUFFERED": "1"}
    if config.trainer.device == config.rollout.engine.device == "cpu":
        # Megatron would otherwise find a GPU that the run is not to use.
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    return fixed


class WorldProcess:
    """mpiexec in a session of its own, so that the terminal's Ctrl-C reaches only this process."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self.asked_to_end = False
        """Whether a user has ended it before the controller could be asked."""
        # A SimpleQueue waits for ever when a signal's handler takes longer than was left to wait (CPython 3.11).
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def lines(self, limit_s: Seconds) -> Iterator[str]:
        """Yield what the ranks have printed; waits up to `limit_s` for the first line, and for none after it."""
        try:
            yield self._lines.get(timeout=limit_s)
            while True:
                yield self._lines.get_nowait()
        except Empty:
            return

    def rest(self, limit_s: Seconds) -> Iterator[str]:
        """Yield what is left after the process has ended."""
        self._reader.join(limit_s)
        yield from self.lines(0.001)

    def interrupt(self, controller_pid: int | None) -> None:
        """Ask the controller to stop after its step; before it has said its pid, end the whole world."""
        if controller_pid is not None and _alive(controller_pid):
            os.kill(controller_pid, signal.SIGINT)
        else:
            self.asked_to_end = True
            self.kill()

    def kill(self) -> None:
        """End the whole world at once: ranks ignore gentler signals, which are the controller's to answer.

        Only mpiexec is in this group; when it is gone, its proxies kill the ranks.
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, limit_s: Seconds) -> bool:
        """Return whether it has ended within `limit_s`; kills it and returns False otherwise."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            return False
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None, "the output was not piped"
        with self._process.stdout as stream:
            for line in stream:
                self._lines.put(line.rstrip("\n"))


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _mpiexec() -> str:
    """Return the launcher of the MPI that mpi4py uses: the one installed beside this interpreter comes first."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise UserError("mpiexec is not installed: `pip install mpich` puts it beside this Python")
    return found
