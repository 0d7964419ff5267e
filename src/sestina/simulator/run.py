"""A whole simulated run: its steps, and what they leave behind."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import get_args

from rich.console import Console

from sestina.config.resolved import as_dict, write_resolved
from sestina.config.run import RunConfig
from sestina.config.sim import SimConfig
from sestina.config.split import share_of
from sestina.controller.draft_metrics import tally_metrics
from sestina.controller.feed import Feed
from sestina.controller.materials import Materials
from sestina.controller.plan import planner_of
from sestina.controller.preflight import prepare
from sestina.controller.run_dir import CONFIG, JOURNAL, SUMMARY, RunDir
from sestina.controller.sample import Sample, rows_of
from sestina.controller.trainer import silence_megatron, trainer_job
from sestina.core.errors import ConfigError, RunDirError
from sestina.core.units import Seconds
from sestina.policies.planner import SchedulerKind
from sestina.rewards import messages as rewards
from sestina.rewards.outcome import Outcome
from sestina.rewards.pool import RewardPool
from sestina.rollout.meter import Meter, meter_for
from sestina.rollout.speculation.desk import DraftDesk
from sestina.simulator.advice.advise import advise
from sestina.simulator.advice.table import ADVICE
from sestina.simulator.clock import VirtualClock, nothing_takes_time
from sestina.simulator.compare import PICTURE, TABLE, draw_finished, table_of, write_table
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.emulated import EmulatedDriver
from sestina.simulator.emulated_pipeline import pipelined_steps
from sestina.simulator.engines import cost_of, instances_of
from sestina.simulator.heap import settled_heap
from sestina.simulator.rollouts import roll_out
from sestina.simulator.scoring import Score
from sestina.simulator.trainer import EmulatedTrainer
from sestina.simulator.training import EmulatedRun
from sestina.simulator.world import world_of
from sestina.telemetry.figure import draw
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import FILE_NAME as METRICS
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.report import summary
from sestina.telemetry.traces import write_step


def simulate(config: RunConfig, console: Console) -> None:
    """Take every step of a run and show what came of it; raises a UserError before anything is written."""
    if config.sim is None:
        raise ConfigError(["sim: null is no world to simulate; sim=emulated and sim=simulated are"])
    if config.sim.world == "simulated":
        _simulate(config, config.sim, console)
    else:
        _emulate(config, config.sim, console)


def _emulate(config: RunConfig, sim: SimConfig, console: Console) -> None:
    materials, cost = prepare(config), cost_of(config, sim)
    with _held(config) as run_dir:
        write_resolved(config, run_dir.file(CONFIG))
        _roll_out(config, sim, cost, materials, run_dir, console)
    _report(run_dir, console)


def _simulate(config: RunConfig, sim: SimConfig, console: Console) -> None:
    """Let the run's scheduler, or those to compare, roll out fluid instances."""
    if sim.advise:
        share_of(config)  # raises where there are no GPUs to advise on
        with _held(config) as run_dir:
            advise(config, sim, run_dir.path, console)
        return
    world = world_of(config, sim)
    schedulers = sim.compare or (config.rollout.scheduler,)
    with _held(config) as run_dir:
        folders = [run_dir.path / kind if sim.compare else run_dir.path for kind in schedulers]
        compared = [roll_out(world, kind, folder, console) for kind, folder in zip(schedulers, folders, strict=True)]
        write_table(compared, run_dir.file(TABLE))
        draw_finished(compared, run_dir.file(PICTURE))
    if not sim.compare:
        _report(run_dir, console)
    console.print(table_of(compared, world.uncalibrated))
    console.print(f"figure: {run_dir.file(PICTURE)}")


def _report(run_dir: RunDir, console: Console) -> None:
    console.print(summary(run_dir.path))
    draw(run_dir.path, run_dir.file(SUMMARY))
    console.print(f"figure: {run_dir.file(SUMMARY)}")


@contextlib.contextmanager
def _held(config: RunConfig) -> Iterator[RunDir]:
    """Yield the run's directory, which holds no run, and keep others out meanwhile."""
    run_dir = RunDir(config.dir)
    run_dir.check_writable()
    # Of schedulers that are compared each has a directory of its own, and the table comes last.
    folders = (run_dir.path, *(run_dir.path / kind for kind in get_args(SchedulerKind)))
    left = [*(folder / METRICS for folder in folders), run_dir.file(TABLE), run_dir.file(ADVICE)]
    if any(path.exists() for path in left):
        raise RunDirError(f"{run_dir.path} holds a run; give a simulation another name or dir")
    run_dir.hold()
    try:
        yield run_dir
    finally:
        run_dir.release()


def _roll_out(
    config: RunConfig,
    sim: SimConfig,
    cost: EngineCost | None,
    materials: Materials,
    run_dir: RunDir,
    console: Console,
) -> None:
    meter = meter_for(config.rollout.engine.device)
    desks = [DraftDesk() for _ in range(config.rollout.num_instances)]
    with ExitStack() as stack:
        metrics = MetricsWriter(
            run_dir.path, config.telemetry, resolved=as_dict(config), name=config.name, first_step=0
        )
        stack.push(lambda kind, *_: metrics.close(failed=kind is not None))
        instances = instances_of(config, sim, desks, cost)
        for instance in instances:
            stack.callback(instance.engine.close)
        driver = EmulatedDriver(
            planner_of(config),
            instances,
            clock=VirtualClock(meter if sim.controller == "measured" else nothing_takes_time),
            journal=stack.enter_context(closing(Journal(run_dir.file(JOURNAL)))),
            tokenizer=materials.tokenizer,
            score=stack.enter_context(_pool(config, None if cost is None else sim.reward_s)),
            num_workers=config.reward.num_workers,
        )
        feed = Feed(config, materials)
        trainer = stack.enter_context(_trainer(config, sim, meter))
        stack.enter_context(settled_heap())
        for step, samples, values in _steps(config, sim, driver, feed, trainer):
            metrics.log(step, values | tally_metrics([desk.tally.take() for desk in desks]))
            chunks = [chunk for sample in samples for chunk in sample.chunks]
            write_step(run_dir.path, step, rows_of(samples), chunks)
            console.print(_line(step, values))


def _steps(
    config: RunConfig, sim: SimConfig, driver: EmulatedDriver, feed: Feed, trainer: EmulatedTrainer | None
) -> Iterator[tuple[int, list[Sample], dict[str, float]]]:
    """Yield each step's samples and metrics; step 0 is an evaluation before the first."""
    if config.run.mode == "pipelined":
        for step, (samples, values) in enumerate(pipelined_steps(config, driver, feed, sim.train_s), start=1):
            yield step, samples, values
        return
    run = EmulatedRun(config, feed, driver, trainer)
    for step in range(config.run.steps + 1):
        samples, values = run.step(step) if step else run.begin()
        if values:
            yield step, samples, values


def _line(step: int, values: dict[str, float]) -> str:
    accuracy = f", accuracy {values['eval/accuracy']:.3f}" if "eval/accuracy" in values else ""
    if not step:
        return f"step 0{accuracy}"
    rate, step_s = values["perf/rollout_tokens"] / values["perf/step_s"], values["perf/step_s"]
    return f"step {step}: {step_s:.3f} s, {rate:,.0f} tokens/s ({values['perf/simulation_s']:.1f} s){accuracy}"


@contextlib.contextmanager
def _trainer(config: RunConfig, sim: SimConfig, meter: Meter) -> Iterator[EmulatedTrainer | None]:
    if not sim.trainer_shares:
        yield None
        return
    silence_megatron()
    with closing(EmulatedTrainer(trainer_job(config), shares=sim.trainer_shares, meter=meter)) as trainer:
        yield trainer


@contextlib.contextmanager
def _pool(config: RunConfig, takes_s: Seconds | None) -> Iterator[Score]:
    """Yield what scores with the run's own reward workers, and takes what it takes, or what is given."""
    with asyncio.Runner() as runner:
        pool = RewardPool(config.reward, start_limit_s=config.deadlines.start_s)
        runner.run(pool.__aenter__())

        def score(sample: rewards.Sample) -> Outcome:
            outcome = runner.run(pool.score(sample))
            return outcome if takes_s is None else replace(outcome, elapsed_s=takes_s)

        try:
            yield score
        finally:
            runner.run(pool.close())
