"""The controller rank: builds the parts of a run, connects them, and runs the loop."""

import asyncio
import logging
import signal
from contextlib import ExitStack, closing

from sestina.config.resolved import as_dict
from sestina.config.run import RunConfig
from sestina.controller.checkpoints import Checkpoints
from sestina.controller.driver import RolloutDriver
from sestina.controller.loop import train
from sestina.controller.preflight import Materials, prepare
from sestina.controller.progress import Progress
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import JOURNAL, STATUS, RunDir, Start
from sestina.controller.session import Session
from sestina.core.errors import SestinaError
from sestina.core.noise import derive
from sestina.policies.planner import build_planner
from sestina.rewards.pool import RewardPool
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.traces import drop_steps
from sestina.transport.world import World

_log = logging.getLogger(__name__)
_PLACEMENT = 2
"""Name, below the run's seed, of the key that binds groups to instances."""


def run(config: RunConfig, world: World) -> None:
    """Control a run to its end; raises what ended it."""
    run_dir = RunDir(config.dir)
    run_dir.hold()
    progress = Progress(run_dir.file(STATUS), name=config.name, num_steps=config.run.steps)
    try:
        asyncio.run(_run(config, world, run_dir, progress))
    except (BaseExceptionGroup, SestinaError) as group:
        error = _first(group)
        progress.end("failed", f"failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        raise error from None
    finally:
        run_dir.release()


async def _run(config: RunConfig, world: World, run_dir: RunDir, progress: Progress) -> None:
    start = run_dir.plan(config)
    progress.write()
    materials = prepare(config)
    async with RewardPool(config.reward, start_limit_s=config.deadlines.start_s) as pool:
        with ExitStack() as stack:
            metrics = _open_metrics(config, run_dir, start)
            stack.push(lambda kind, *_: metrics.close(failed=kind is not None))
            journal = stack.enter_context(closing(Journal(run_dir.file(JOURNAL))))
            await _serve(config, world, run_dir, start, materials, progress, pool, journal, metrics)


async def _serve(
    config: RunConfig,
    world: World,
    run_dir: RunDir,
    start: Start,
    materials: Materials,
    progress: Progress,
    pool: RewardPool,
    journal: Journal,
    metrics: MetricsWriter,
) -> None:
    """Run the loop beside the tasks it lives on: messages, status, rewards."""
    planner = build_planner(
        config.rollout.scheduler, chunk_tokens=config.rollout.chunk_tokens, seed=derive(config.seed, _PLACEMENT)
    )
    async with asyncio.TaskGroup() as tasks:
        driver = RolloutDriver(planner, pool=pool, journal=journal, tokenizer=materials.tokenizer, tasks=tasks)
        ranks = Ranks(world, silence_s=config.deadlines.silence_s, on_chunk=driver.chunk_ended)
        driver.connect(ranks)
        progress.watch(ranks.processes)
        session = Session(
            config,
            start,
            materials,
            ranks=ranks,
            driver=driver,
            checkpoints=Checkpoints(run_dir, ranks, config),
            metrics=metrics,
            progress=progress,
        )
        _on_signals(session)
        background = [tasks.create_task(ranks.pump()), tasks.create_task(progress.publish())]
        await train(session)
        for task in background:
            task.cancel()
    ranks.drain(config.deadlines.stop_s)


def _open_metrics(config: RunConfig, run_dir: RunDir, start: Start) -> MetricsWriter:
    first_step = 0 if start.checkpoint is None else start.step + 1
    drop_steps(run_dir.path, first_step)
    return MetricsWriter(
        run_dir.path, config.telemetry, resolved=as_dict(config), name=config.name, first_step=first_step
    )


def _first(error: BaseException) -> BaseException:
    """Return the error that ended a group of tasks; those after it are its consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _on_signals(session: Session) -> None:
    """A first SIGINT or SIGTERM asks for a stop, a second one ends the process."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        _log.warning("%s: leaving after this step; once more leaves at once", number.name)
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        session.request_stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
