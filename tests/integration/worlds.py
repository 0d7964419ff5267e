"""Runs launch/train.py as its users do, on a model small enough for tests."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sestina.data.sums import ALPHABET
from sestina.models.tokenizer import write_character_tokenizer
from sestina.models.weights import write_model
from sestina.telemetry.metrics import read_metrics
from sestina.telemetry.status import read_status
from tests.conftest import lively_weights, make_shape

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 180
SMALL = {
    "run.steps": 2,
    "run.checkpoint_every": 0,
    "algorithm.batch_size": 32,
    "algorithm.group_size": 4,
    "algorithm.minibatches": 2,
    "data.num_prompts": 60,
    "data.num_eval_prompts": 8,
    "data.max_terms": 8,
    "data.max_prompt_tokens": 24,
    "rollout.max_new_tokens": 80,
    "rollout.chunk_tokens": 16,
    "rollout.engine.kv_capacity_tokens": 1024,
    "rollout.engine.max_running": 8,
    "rollout.engine.max_step_tokens": 64,
    "reward.path": "tests.integration.rewards:even",
    "eval.every": 0,
    "eval.num_prompts": 8,
    "telemetry.wandb": '"off"',
    "deadlines.start_s": 90,
    "deadlines.stop_s": 20,
}


@dataclass
class Run:
    """One call of launch/train.py and what it left."""

    dir: Path
    code: int = 0
    output: str = ""
    wall_s: float = field(default=0.0)

    def metric(self, name):
        return [line.values[name] for line in read_metrics(self.dir) if name in line.values]

    def model(self, step):
        return (self.dir / f"checkpoints/step_{step:06d}/model/model.safetensors").read_bytes()


def small_model(folder):
    shape = make_shape(vocab_size=80)
    write_model(folder, shape, lively_weights(shape, scale=0.08).items())
    write_character_tokenizer(folder, ALPHABET)
    return folder


BASE = ("+exp=quickstart", "reward=function")
SLOWLY = {"rollout__engine__max_running": 1, "rollout__chunk_tokens": 5}
"""A rollout of the same tokens in many chunks, one after the other; with `slowed` it takes some seconds."""
STOP_S = 0.1
"""That a rank which is `slowed` does not run, each time."""


def arguments(folder, model, changes, base=BASE):
    """Return the command line; a change to None drops a key of SMALL."""
    values = {**SMALL, "dir": folder, "model.path": model, **changes}
    return [*base, *(f"{key}={value}" for key, value in values.items() if value is not None)]


def train(folder, model, base=BASE, **changes):
    """Run to the end; keys of `changes` have `__` for the dot."""
    with training(folder, model, base, **changes) as (process, run):
        finish(process, run)
    return run


def finish(process, run):
    start = time.monotonic()
    run.output = process.communicate(timeout=LIMIT_S)[0]
    run.code, run.wall_s = process.returncode, time.monotonic() - start


@contextmanager
def training(folder, model, base=BASE, **changes):
    """Start a run; yields the launcher's process and the Run to `finish`."""
    overrides = arguments(folder, model, {key.replace("__", "."): value for key, value in changes.items()}, base)
    command = [sys.executable, str(ROOT / "launch/train.py"), *overrides]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process, Run(dir=Path(folder))
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def wait_for(process, run, condition, limit_s=90):
    """Return the status once `condition(status)` holds; fails with the run's output when it ends before."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        status = read_status(run.dir / "status.json")
        if status is not None and condition(status):
            return status
        time.sleep(0.02)
    raise AssertionError(f"waited {limit_s} s; the status is {status}")


def rolling_out(status):
    return status.step >= 1 and status.phase.startswith("rollout")


@contextmanager
def slowed(folder, run_s=0.01):
    """Let rollout ranks and their servers run for `run_s` of each tenth of a second, as where much else runs.

    A rollout then has a middle to be caught in; the ranks learn nothing of it. It begins with the first rollout that is
    seen: a fast one can be over before the status file says so, but the first one has the trainer to wait for.
    """
    over = threading.Event()
    thread = threading.Thread(target=_slow_down, args=(Path(folder) / "status.json", run_s, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _slow_down(path, run_s, over):
    processes = []
    while not over.wait(run_s):
        status = None if processes else read_status(path)
        if status is not None and re.match("rollout|[0-9]+ groups ended", status.phase):
            processes = [process for rank in status.ranks if rank.name.startswith("rollout") for process in tree(rank)]
        if processes:
            _signal(processes, signal.SIGSTOP)
            over.wait(STOP_S)
            _signal(processes, signal.SIGCONT)


def tree(rank):
    """Return a rank's process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(rank.pid)
        return [process, *process.children(recursive=True)]
    return []


def _signal(processes, number):
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def only_rewards_left(status):
    """Whether a batch of four waits for its rewards, and everybody else has nothing to do."""
    return "4 of 4 responses left" in status.phase and "the trainer is being built" not in status.phase


def halfway(phase):
    """Whether some responses of a rollout are done and most are not, so that some are in between."""
    left = re.match(r"rollout: (\d+) of (\d+) responses left", phase)
    return left is not None and int(left[1]) < int(left[2]) * 3 / 4


def pid_of(status, name):
    return next(rank.pid for rank in status.ranks if rank.name.startswith(name))
