"""What every rank does: joins the world, plays its role, and supervises itself.

Whatever ends a rank early is printed once, under its name, and ends the whole world.
"""

import argparse
import logging
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

from mpi4py import MPI

from sestina.config.resolved import read_resolved
from sestina.config.run import RunConfig
from sestina.controller.progress import STEP_LINES
from sestina.controller.run_dir import CONFIG, LOGS
from sestina.core.errors import SestinaError, UserError
from sestina.models.shape import read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.transport.link import Link
from sestina.transport.world import World, join_world, leave_world

DRAIN_S = 0.5
"""Given to mpiexec to pass on what was printed: it drops what it has not read when the world is aborted."""


def main() -> None:
    """Play a role until the run ends; the exit code is that of the error that ended it, 0 when none did."""
    arguments = _arguments()
    _set_up_logging(arguments.role, step_lines=not arguments.quiet)
    if arguments.role != "controller":
        # Signals are for the controller, which lets the other ranks go.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rank, world = MPI.COMM_WORLD.Get_rank(), None
    name = f"{arguments.role} (rank {rank})"
    try:
        config = read_resolved(arguments.run_dir / CONFIG)
        world = join_world(
            arguments.role,
            num_rollouts=config.rollout.num_instances,
            num_trainers=config.trainer.num_ranks,
            limit_s=config.deadlines.start_s,
        )
        name = world.name
        _play(config, world)
        # The controller comes last: it still closes what it has written.
        leave_world(world, 3 * config.deadlines.stop_s)
    except BaseException as error:  # noqa: BLE001 - the supervisor: reports what it caught and ends the world
        if world is None or world.index:
            # The ranks of a role often fail together, of one cause: the first one's word ends the world before this.
            time.sleep(2 * DRAIN_S * (rank > 0))
        _report(name, error)
        MPI.COMM_WORLD.Abort(_exit_code(error))


def _play(config: RunConfig, world: World) -> None:
    """Only the role's own libraries are imported: the controller needs no torch, a rollout rank no Megatron."""
    match world.role:
        case "controller":
            from sestina.controller import main as controller  # noqa: PLC0415

            controller.run(config, world)
        case "rollout":
            _play_rollout(config, world)
        case "trainer":
            _play_trainer(config, world)


def _play_rollout(config: RunConfig, world: World) -> None:
    from sestina.rollout.build import InstanceConfig  # noqa: PLC0415
    from sestina.rollout.worker import RolloutWorker  # noqa: PLC0415

    shape = read_shape(config.model.path)
    job = InstanceConfig(
        instance=world.index,
        engine=config.rollout.engine,
        model=config.model.path.absolute(),
        log=(config.dir / LOGS / f"sglang_{world.index}.log").absolute(),
        shape=shape,
        max_context_tokens=config.data.max_prompt_tokens + config.rollout.max_new_tokens,
        seed=config.seed,
        stop_token=Tokenizer(config.model.path, model_vocab_size=shape.vocab_size).eos_id,
        weights_timeout_s=config.weights.timeout_s,
        stop_s=config.deadlines.stop_s,
    )
    RolloutWorker(job, Link(world, silence_s=config.deadlines.silence_s)).run()


def _play_trainer(config: RunConfig, world: World) -> None:
    # Megatron warns on import of every accelerator library it does not find.
    warnings.filterwarnings("ignore", module="megatron")
    logging.getLogger("megatron").setLevel(logging.ERROR)
    from sestina.trainer import worker  # noqa: PLC0415
    from sestina.trainer.rank import TrainerJob  # noqa: PLC0415

    job = TrainerJob(
        trainer=config.trainer,
        algorithm=config.algorithm,
        model=config.model.path,
        shape=read_shape(config.model.path),
        seed=config.seed,
        bucket_bytes=config.weights.bucket_bytes,
        weights_timeout_s=config.weights.timeout_s,
        train_s=config.deadlines.train_s,
        checkpoint_s=config.deadlines.checkpoint_s,
    )
    limits = config.deadlines
    worker.run(
        job, world, host=config.weights.host, start_s=limits.start_s, silence_s=limits.silence_s, stop_s=limits.stop_s
    )


def _report(name: str, error: BaseException) -> None:
    """Print what ended this rank: the message of an error that is the user's to mend, else the whole traceback."""
    lines = str(error) if isinstance(error, UserError) else "".join(traceback.format_exception(error)).rstrip()
    sys.stdout.flush()
    sys.stderr.write(f"\n{name} failed:\n{lines}\n")
    sys.stderr.flush()
    time.sleep(DRAIN_S)


def _exit_code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, SestinaError) else 1


def _set_up_logging(role: str, *, step_lines: bool) -> None:
    rank = MPI.COMM_WORLD.Get_rank()
    logging.basicConfig(
        level=logging.WARNING, format=f"{role} (rank {rank}) %(levelname)s: %(message)s", stream=sys.stderr
    )
    steps = logging.getLogger(STEP_LINES)
    steps.propagate = False
    steps.setLevel(logging.INFO if step_lines else logging.CRITICAL)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    steps.addHandler(handler)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sestina.controller.rank", description="one rank of a run")
    parser.add_argument("role", choices=("controller", "rollout", "trainer"))
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--quiet", action="store_true", help="no line per step: a live display shows them")
    return parser.parse_args()
