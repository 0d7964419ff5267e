"""The simulated rollouts of a run under one scheduler, and what they leave in a directory."""

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias, assert_never

from rich.console import Console

from sestina.config.resolved import as_dict, write_resolved
from sestina.config.run import RunConfig
from sestina.controller.plan import planner_of
from sestina.controller.run_dir import CONFIG, JOURNAL
from sestina.core.units import Seconds
from sestina.policies.planner import RolloutPlanner, SchedulerKind
from sestina.simulator.ahead import AheadRun
from sestina.simulator.feed import SimulatedFeed
from sestina.simulator.fluid import FluidInstance
from sestina.simulator.outcome import Spans, finished_after, step_metrics
from sestina.simulator.response import Response
from sestina.simulator.resume import Resume
from sestina.simulator.simulated import SimulatedDriver
from sestina.simulator.step_ahead import StepAheadRun
from sestina.simulator.world import World
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.traces import write_step

TakeStep: TypeAlias = Callable[[int], tuple[list[Response], dict[str, float]]]
"""Step, from 1 -> its responses and metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What one scheduler came to."""

    scheduler: SchedulerKind
    steps: tuple[dict[str, float], ...]
    """Metrics of each."""
    finished_s: tuple[Seconds, ...]
    """When the responses of the last step had finished, since their offer, rising."""


def driver_of(
    world: World, scheduler: SchedulerKind, journal: Journal | None, planner: RolloutPlanner | None = None
) -> SimulatedDriver:
    """Return a driver whose instances are up; `planner` takes the place of the run's own."""
    rollout = dataclasses.replace(world.config.rollout, scheduler=scheduler)
    resume = Resume(pool=world.pool(), page_tokens=world.limits.page_tokens)
    instances = [
        FluidInstance(number, world.limits, world.cost, world.drafting, resume, world.on_update)
        for number in range(rollout.num_instances)
    ]
    return SimulatedDriver(
        planner or planner_of(dataclasses.replace(world.config, rollout=rollout)),
        instances,
        page_tokens=world.page_tokens,
        journal=journal,
        drafting=world.drafting,
        resume=resume,
        num_workers=world.config.reward.num_workers,
        tell_lengths=scheduler == "oracle",
        load_s=world.load_s,
    )


def roll_out(world: World, scheduler: SchedulerKind, folder: Path, console: Console) -> Rollouts:
    """Simulate every step; leaves configuration, metrics, journal and traces in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = _config(world.config, scheduler, folder)
    world = dataclasses.replace(world, config=config)
    write_resolved(config, folder / CONFIG)
    lines: list[dict[str, float]] = []
    responses: list[Response] = []
    with ExitStack() as stack:
        metrics = MetricsWriter(
            folder, config.telemetry, resolved=as_dict(config), name=f"{config.name}-{scheduler}", first_step=1
        )
        stack.push(lambda kind, *_: metrics.close(failed=kind is not None))
        step_of = steps_of(world, driver_of(world, scheduler, stack.enter_context(closing(Journal(folder / JOURNAL)))))
        for step in range(1, config.run.steps + 1):
            responses, values = step_of(step)
            lines.append(values)
            rows = [row for response in responses for row in response.chunks]
            write_step(folder, step, [response.row() for response in responses], rows)
            metrics.log(step, values)
            console.print(_line(world, scheduler, step, values))
    return Rollouts(scheduler=scheduler, steps=tuple(lines), finished_s=tuple(finished_after(responses)))


def steps_of(world: World, driver: SimulatedDriver) -> TakeStep:
    """Return what takes a run's steps, in order."""
    match world.config.run.mode:
        case "async":
            return AheadRun(world, driver).take_step
        case "pipelined":
            return StepAheadRun(world, driver).take_step
        case "sync":
            return partial(take_step, world, driver)
        case _:
            assert_never(world.config.run.mode)


def take_step(world: World, driver: SimulatedDriver, step: int) -> tuple[list[Response], dict[str, float]]:
    """Simulate one synchronous step, training and weights included; returns its responses and metrics."""
    began_s, offered_s = time.perf_counter(), driver.now_s
    feed = SimulatedFeed(world.workload, max_new_tokens=world.config.rollout.max_new_tokens)
    responses = driver.roll_out(feed.of_step(step))
    spans = Spans(
        rollout_s=driver.now_s - offered_s,
        train_s=world.training.batch_s([response.prompt_tokens + response.length for response in responses]),
        weights_s=world.weights_s,
        simulation_s=time.perf_counter() - began_s,
    )
    driver.now_s += spans.train_s + spans.weights_s
    return responses, step_metrics(responses, spans, world.uncalibrated)


def _line(world: World, scheduler: SchedulerKind, step: int, values: dict[str, float]) -> str:
    span = "step" if world.overlaps else "rollout"
    return (
        f"{scheduler}, step {step}: {span} {values[f'perf/{span}_s']:,.1f} s, "
        f"{values['perf/tokens_per_s']:,.0f} tokens/s ({values['perf/simulation_s']:.1f} s here)"
    )


def _config(config: RunConfig, scheduler: SchedulerKind, folder: Path) -> RunConfig:
    """Return the configuration of one scheduler alone."""
    sim = config.sim and dataclasses.replace(config.sim, compare=())
    rollout = dataclasses.replace(config.rollout, scheduler=scheduler)
    return dataclasses.replace(config, dir=folder, rollout=rollout, sim=sim)
