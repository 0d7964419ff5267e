"""The controller rank: builds the parts of a run, connects them, and runs the loop."""

import asyncio
import logging
import time
from contextlib import ExitStack, closing

from sestina.config.resolved import as_dict
from sestina.config.run import RunConfig
from sestina.controller.checkpoints import Checkpoints
from sestina.controller.draft_service import DraftService
from sestina.controller.driver import RolloutDriver
from sestina.controller.feed import Feed
from sestina.controller.histories import Histories
from sestina.controller.loop import train
from sestina.controller.plan import planner_of
from sestina.controller.preflight import prepare
from sestina.controller.progress import Progress, show_steps
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import JOURNAL, STATUS, STOP, RunDir
from sestina.controller.session import Session
from sestina.controller.start import Start, plan
from sestina.controller.stop import StopRequest
from sestina.controller.turns import open_turns
from sestina.core.errors import SestinaError
from sestina.rewards.pool import RewardPool
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.traces import drop_steps
from sestina.transport.world import World

_log = logging.getLogger(__name__)


def run(config: RunConfig, world: World, *, quiet: bool) -> None:
    """Control a run to its end; raises what ended it."""
    show_steps(shown=not quiet)
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
    # Said last: whoever reads it may take every file as complete.
    if progress.step >= config.run.steps:
        progress.end("finished", f"finished: {progress.step} steps")
    else:
        progress.end("stopped", f"stopped after step {progress.step}; the same command continues")


async def _run(config: RunConfig, world: World, run_dir: RunDir, progress: Progress) -> None:
    """Messages are taken from the first moment on, whatever takes its time: ranks count on a sign of life."""
    stop = StopRequest()
    stop.listen()
    async with asyncio.TaskGroup() as tasks:
        ranks = Ranks(world, silence_s=config.deadlines.silence_s)
        progress.watch(ranks.processes)
        progress.phase("prompts, rewards and ranks to be ready")
        pump = tasks.create_task(ranks.pump())
        watch = tasks.create_task(stop.watch(run_dir.file(STOP)))
        await _control(config, run_dir, ranks, progress, stop, tasks)
        watch.cancel()
        pump.cancel()


async def _control(
    config: RunConfig, run_dir: RunDir, ranks: Ranks, progress: Progress, stop: StopRequest, tasks: asyncio.TaskGroup
) -> None:
    start = plan(run_dir, config)
    materials = await asyncio.to_thread(prepare, config)
    start_s = config.deadlines.start_s
    async with (
        RewardPool(config.reward, start_limit_s=start_s) as pool,
        open_turns(config.environment, materials.tokenizer, start_s) as turns,
    ):
        with ExitStack() as stack:
            metrics = _open_metrics(config, run_dir, start)
            stack.push(lambda kind, *_: metrics.close(failed=kind is not None))
            journal = stack.enter_context(closing(Journal(run_dir.file(JOURNAL))))
            status = tasks.create_task(progress.publish(lambda: journal.tick(time.monotonic())))
            feed = Feed(config, materials)
            histories = _histories(config, ranks, tasks, feed)
            if histories is not None:
                stack.callback(histories.close)
            drafts = stack.enter_context(closing(DraftService(config, ranks, vocab_size=materials.shape.vocab_size)))
            telling = tasks.create_task(drafts.tell_ranks())
            driver = RolloutDriver(
                planner_of(config),
                ranks=ranks,
                pool=pool,
                journal=journal,
                tokenizer=materials.tokenizer,
                tasks=tasks,
                stall_s=config.deadlines.silence_s + config.reward.timeout_s,
                **({} if histories is None else {"on_dispatch": histories.dispatched}),
                turns=turns,
                foretell=config.rollout.kv_pool.kind != "none",
            )
            session = Session(
                config,
                start,
                feed,
                ranks=ranks,
                driver=driver,
                drafts=drafts,
                checkpoints=Checkpoints(run_dir, ranks, config, histories),
                histories=histories,
                metrics=metrics,
                progress=progress,
                stop=stop,
                tasks=tasks,
            )
            await train(session)
            status.cancel()
            telling.cancel()


def _histories(config: RunConfig, ranks: Ranks, tasks: asyncio.TaskGroup, feed: Feed) -> Histories | None:
    if "history" not in config.draft.source:
        return None
    state = feed.state()
    asked = config.run.steps * (config.algorithm.batch_size // config.algorithm.group_size)
    if asked <= state.cursor.num_prompts:
        _log.warning(
            "draft.source %r: %d steps ask %d of %d prompts once each, so that no history is drafted from",
            config.draft.source,
            config.run.steps,
            asked,
            state.cursor.num_prompts,
        )
    return Histories(config.dir, ranks, tasks, limit_bytes=config.draft.history_bytes, digest=state.digest)


def _open_metrics(config: RunConfig, run_dir: RunDir, start: Start) -> MetricsWriter:
    """Open them first: only then has the run begun that the dropped traces make way for."""
    first_step = 0 if start.checkpoint is None else start.step + 1
    metrics = MetricsWriter(
        run_dir.path, config.telemetry, resolved=as_dict(config), name=config.name, first_step=first_step
    )
    drop_steps(run_dir.path, first_step)
    return metrics


def _first(error: BaseException) -> BaseException:
    """Return the error that ended a group of tasks; those after it are its consequences."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
