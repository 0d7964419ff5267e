"""What every rank does: joins the world, plays its role, and supervises itself.

Whatever ends a rank early is printed once, under its name, and ends the whole world.
"""

import argparse
import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from mpi4py import MPI

from sestina.config.run import RunConfig
from sestina.controller.ending import end_when_over
from sestina.controller.node import claim_gpus, meeting_host
from sestina.controller.run_dir import CONFIG, FAILURES, STOP
from sestina.controller.trainer import silence_megatron, trainer_job
from sestina.core.errors import SestinaError, UserError
from sestina.core.imports import importing
from sestina.telemetry.failures import Failure, write_failure
from sestina.transport.link import Link
from sestina.transport.mpi import broadcast
from sestina.transport.world import World, check_size, join_world, leave_world, role_at, speaks_first

CONFIG_S = 120
"""For the first rank to read the configuration; the configuration's own limits are not known before."""

ABORT_S = 5
"""Given to MPI to end the world."""

DRAIN_S = 0.5
"""Given to mpiexec to pass on what was printed: it drops what it has not read when the world is aborted."""


def main() -> None:
    """Play a role until the run ends; the exit code is that of the error that ended it, 0 when none did."""
    arguments = _arguments()
    rank, world = MPI.COMM_WORLD.Get_rank(), None
    name = f"{arguments.roles} (rank {rank})"
    try:
        check_size()
        role = role_at(arguments.roles, rank)
        name = f"{role} (rank {rank})"
        _set_up_logging(role)
        if role != "controller":
            # Signals are for the controller, which lets the other ranks go.
            end_when_over(arguments.run_dir / STOP)
        config = _read_config(arguments.run_dir)
        world = join_world(
            role,
            num_rollouts=config.rollout.num_instances,
            num_trainers=config.trainer.num_ranks,
            limit_s=config.deadlines.start_s,
        )
        name = world.name
        _play(config, world, quiet=arguments.quiet)
        # The controller comes last: it still closes what it has written.
        leave_world(world, 3 * config.deadlines.stop_s)
    except BaseException as error:  # noqa: BLE001 - the supervisor: reports what it caught and ends the world
        if world is None or world.index:
            # The ranks of a role often fail together, of one cause: the first one's word ends the world before this.
            time.sleep(2 * DRAIN_S * (not speaks_first()))
        _report(name, error, arguments.run_dir)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(ABORT_S)  # should MPI itself hang: this ends the process whatever it is doing
        MPI.COMM_WORLD.Abort(_exit_code(error))


def _read_config(run_dir: Path) -> RunConfig:
    """Return the configuration, which the first rank reads for all: the others need none of what checks it."""
    world, frame = MPI.COMM_WORLD, None
    if world.Get_rank() == 0:
        from sestina.config.resolved import read_resolved  # noqa: PLC0415

        frame = pickle.dumps(read_resolved(run_dir / CONFIG))
    return pickle.loads(broadcast(world, frame, CONFIG_S, "the first rank to read the configuration"))


def _play(config: RunConfig, world: World, *, quiet: bool) -> None:
    """Only the role's own libraries are imported: the controller needs no torch, a rollout rank no Megatron."""
    claim_gpus(config, world.role, world.index)
    match world.role:
        case "controller":
            with importing():
                from sestina.controller import main as controller  # noqa: PLC0415

            controller.run(config, world, quiet=quiet)
        case "rollout":
            _play_rollout(config, world)
        case "trainer":
            _play_trainer(config, world)


def _play_rollout(config: RunConfig, world: World) -> None:
    with importing():
        from sestina.controller.instance import instance_config  # noqa: PLC0415
        from sestina.rollout.worker import RolloutWorker  # noqa: PLC0415

    job = instance_config(config, world.index)
    RolloutWorker(job, Link(world, silence_s=config.deadlines.silence_s)).run()


def _play_trainer(config: RunConfig, world: World) -> None:
    silence_megatron()
    from sestina.trainer import worker  # noqa: PLC0415

    job = trainer_job(config)
    limits = config.deadlines
    host = meeting_host(config)
    worker.run(job, world, host=host, silence_s=limits.silence_s, stop_s=limits.stop_s)


def _report(name: str, error: BaseException, run_dir: Path) -> None:
    """Print what ended this rank: the message of an error that is the user's to mend, else the whole traceback.

    In a job the same is left in the run directory, for whoever says how the job ended.
    """
    if "SLURM_PROCID" in os.environ:
        why = str(error) if isinstance(error, SestinaError) else f"{type(error).__name__}: {error}"
        rank, host = int(os.environ["SLURM_PROCID"]), socket.gethostname()
        failure = Failure(rank=rank, name=name, host=host, exit_code=_exit_code(error), why=why, at=time.time())
        with contextlib.suppress(OSError):  # a run directory that cannot be written may be what it failed of
            write_failure(run_dir / FAILURES, failure)
    lines = str(error) if isinstance(error, UserError) else "".join(traceback.format_exception(error)).rstrip()
    sys.stdout.flush()
    sys.stderr.write(f"\n{name} failed:\n{lines}\n")
    sys.stderr.flush()
    time.sleep(DRAIN_S)


def _exit_code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, SestinaError) else 1


def _set_up_logging(role: str) -> None:
    rank = MPI.COMM_WORLD.Get_rank()
    logging.basicConfig(
        level=logging.WARNING, format=f"{role} (rank {rank}) %(levelname)s: %(message)s", stream=sys.stderr
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sestina.controller.rank", description="one rank of a run")
    parser.add_argument("roles", help="the role, or in a world of mixed components `controller@0,trainer@1`")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--quiet", action="store_true", help="no line per step: a live display shows them")
    return parser.parse_args()
