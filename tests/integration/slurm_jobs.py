"""Jobs on a local SLURM: submitted as users do, watched by polling (`sbatch --wait` looks only every ten seconds)."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.status import read_status
from tests.integration.worlds import ROOT, arguments, pid_of, rolling_out, slowed

BASE = ("+exp=quickstart_slurm", "reward=function")
LIMIT_S = 120
ENDS = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
STEPS = 3


def until(condition, awaited, limit_s=LIMIT_S):
    """Return the first true value of `condition()`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {limit_s} s for {awaited() if callable(awaited) else awaited}")


@dataclass
class Job:
    """A run that was submitted, and its number."""

    number: int
    dir: Path
    limit_s: float = LIMIT_S
    """For a status that is waited for."""

    @property
    def log(self):
        path = self.dir / f"slurm/{self.number}.log"
        return path.read_text() if path.exists() else ""

    @property
    def state(self):
        return self.shown("JobState")

    def shown(self, key):
        return re.search(rf"\b{key}=(\S*)", run("scontrol", "show", "job", "-o", str(self.number)).stdout)[1]

    def queued(self):
        return run("squeue", "-h", "-j", str(self.number)).stdout.strip() != ""

    def wait(self, limit_s=LIMIT_S):
        """Return the state once the job is over; one that is queued again is for a moment in no queue."""

        def over():
            return self.state in ENDS and not self.queued()

        def stays_over():
            return over() and (time.sleep(1) or over())

        until(stays_over, lambda: f"job {self.number} to end:\n{self.log}", limit_s)
        return self.state

    @property
    def ended_at(self):
        """Unix seconds, whole ones."""
        return datetime.fromisoformat(self.shown("EndTime")).timestamp()

    def wait_for(self, condition):
        """Return the status once `condition(status)` holds."""

        def holds():
            status = read_status(self.dir / "status.json")
            assert self.state not in ENDS or (status and condition(status)), self.log
            return status if status and condition(status) else None

        return until(holds, lambda: f"a status; the log is\n{self.log}", self.limit_s)

    def kill(self, name, number=signal.SIGKILL):
        """Send a rank a signal in mid-rollout and return the seconds that the job lived on; nodes share their pids."""
        with slowed(self.dir):
            pid = pid_of(self.wait_for(rolling_out), name)
            os.kill(pid, number)
        killed_at = time.time()
        self.wait()
        if number == signal.SIGSTOP and Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
        return self.ended_at - killed_at

    def metric(self, name):
        return [line.values[name] for line in read_metrics(self.dir) if name in line.values]

    def model(self, step=STEPS):
        return (self.dir / f"checkpoints/step_{step:06d}/model/model.safetensors").read_bytes()

    def first_dispatch_s(self):
        """Return the seconds from the job's start to the first request that was sent to an instance.

        SLURM's controller writes when a job starts to the millisecond; the journal has the same machine's clock.
        """
        log = (Path(os.environ["SLURM_CONF"]).parents[1] / "log/slurmctld.log").read_text()
        written = re.findall(rf"^\[(\S+)\] .*Started JobId={self.number}\b", log, re.MULTILINE)
        started = datetime.fromisoformat(written[-1]).timestamp()
        for line in (self.dir / "journal.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if any(command["type"] == "Dispatch" for command in entry.get("commands", ())):
                return entry["now"] + time.time() - time.monotonic() - started
        raise AssertionError("nothing was dispatched")


def preempt(job):
    """Return another job, which wants all nodes and goes before this one; it has them when this returns."""
    words = ["--partition=main", "--nodes=6", "--exclusive", "--output=/dev/null", "--wrap=sleep 3"]
    other = Job(number=int(run("sbatch", "--parsable", *words).stdout), dir=job.dir)
    until(lambda: other.state in {"RUNNING", "COMPLETED"}, lambda: f"the nodes:\n{job.log}")
    return other


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def command_line(folder, model, changes, base=BASE):
    values = {"run.steps": STEPS, "run.checkpoint_every": 1} | {k.replace("__", "."): v for k, v in changes.items()}
    return arguments(folder, model, values, base)


def refused(folder, model, **changes):
    """Return what submission says of a run that it must not submit."""
    done = run(sys.executable, "launch/submit.py", *command_line(folder, model, changes))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def submitted(folder, model, base=BASE, **changes):
    done = run("bash", "slurm/run.sh", *command_line(folder, model, changes, base))
    assert done.returncode == 0, done.stdout + done.stderr
    return Job(number=int(re.match(r"job (\d+):", done.stdout)[1]), dir=Path(folder))
