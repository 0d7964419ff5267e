"""A whole simulated run: the rollouts of its steps, with the weights it starts from, and what they leave behind."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import torch
from rich.console import Console

from sestina.config.resolved import as_dict, write_resolved
from sestina.config.run import RunConfig
from sestina.config.sim import SimConfig
from sestina.controller.batch import rollout_metrics
from sestina.controller.feed import Feed
from sestina.controller.instance import instance_config
from sestina.controller.kv_metrics import kv_pool_metrics
from sestina.controller.materials import Materials
from sestina.controller.plan import planner_of
from sestina.controller.preflight import prepare
from sestina.controller.run_dir import CONFIG, JOURNAL, SUMMARY, RunDir
from sestina.controller.sample import Sample
from sestina.core.errors import ConfigError, RunDirError
from sestina.core.units import InstanceId
from sestina.models.weights import read_weights
from sestina.rewards.pool import RewardPool
from sestina.rollout.build import build_engine
from sestina.simulator.clock import Meter, VirtualClock, meter_for, nothing_takes_time
from sestina.simulator.emulated import EmulatedDriver
from sestina.simulator.inline import Inline
from sestina.simulator.instance import EmulatedInstance
from sestina.simulator.scoring import Score
from sestina.telemetry.figure import draw
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import FILE_NAME as METRICS
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.report import summary
from sestina.telemetry.traces import write_step


def simulate(config: RunConfig, console: Console) -> None:
    """Roll out every step of a run and show what came of it; raises a UserError before anything is written."""
    if config.sim is None:
        raise ConfigError(["sim: null is no world to simulate; sim=emulated is one"])
    materials = prepare(config)
    run_dir = RunDir(config.dir)
    run_dir.check_writable()
    if (run_dir.path / METRICS).exists():
        raise RunDirError(f"{run_dir.path} holds a run; give a simulation another name or dir")
    run_dir.hold()
    try:
        write_resolved(config, run_dir.file(CONFIG))
        _roll_out(config, config.sim, materials, run_dir, console)
    finally:
        run_dir.release()
    console.print(summary(run_dir.path))
    draw(run_dir.path, run_dir.file(SUMMARY))
    console.print(f"figure: {run_dir.file(SUMMARY)}")


def _roll_out(config: RunConfig, sim: SimConfig, materials: Materials, run_dir: RunDir, console: Console) -> None:
    meter = meter_for(config.rollout.engine.device)
    with ExitStack() as stack:
        metrics = MetricsWriter(
            run_dir.path, config.telemetry, resolved=as_dict(config), name=config.name, first_step=1
        )
        stack.push(lambda kind, *_: metrics.close(failed=kind is not None))
        instances = [_instance(config, number, meter) for number in range(config.rollout.num_instances)]
        for instance in instances:
            stack.callback(instance.engine.close)
        driver = EmulatedDriver(
            planner_of(config),
            instances,
            clock=VirtualClock(meter if sim.controller == "measured" else nothing_takes_time),
            journal=stack.enter_context(closing(Journal(run_dir.file(JOURNAL)))),
            tokenizer=materials.tokenizer,
            score=stack.enter_context(_pool(config)),
            num_workers=config.reward.num_workers,
        )
        feed = Feed(config, materials)
        for step in range(1, config.run.steps + 1):
            values = _step(driver, feed, step, config)
            metrics.log(step, values)
            rate, rollout_s = values["perf/tokens_per_s"], values["perf/rollout_s"]
            console.print(f"step {step}: {rollout_s:.3f} s, {rate:,.0f} tokens/s ({values['perf/simulation_s']:.1f} s)")


def _step(driver: EmulatedDriver, feed: Feed, step: int, config: RunConfig) -> dict[str, float]:
    began_s, offered_s = time.perf_counter(), driver.now_s
    samples = driver.roll_out(feed.draw(step))
    write_step(config.dir, step, [sample.row() for sample in samples], [row for each in samples for row in each.chunks])
    rollout_s = driver.now_s - offered_s
    perf = _perf(samples, rollout_s, time.perf_counter() - began_s)
    if config.rollout.kv_pool.kind != "none":
        perf |= kv_pool_metrics(samples, instances_s=rollout_s * config.rollout.num_instances)
    return rollout_metrics(samples) | perf


def _perf(samples: list[Sample], rollout_s: float, simulation_s: float) -> dict[str, float]:
    """`perf/simulation_s` is what the step took here; everything else is virtual time."""
    tokens = float(sum(sample.num_tokens for sample in samples))
    return {
        "perf/rollout_s": rollout_s,
        "perf/step_s": rollout_s,
        "perf/rollout_tokens": tokens,
        "perf/tokens_per_s": tokens / rollout_s,
        "perf/simulation_s": simulation_s,
    }


def _instance(config: RunConfig, number: InstanceId, meter: Meter) -> EmulatedInstance:
    torch.set_num_threads(1)
    clock, job = VirtualClock(meter), instance_config(config, number)
    engine = build_engine(job, clock=clock, kv_thread=Inline())
    tensors = read_weights(job.model, job.shape)
    dtype = getattr(torch, config.rollout.engine.dtype)
    engine.load_weights(0, {name: tensor.to(job.engine.device, dtype) for name, tensor in tensors.items()})
    return EmulatedInstance(number, engine, clock)


@contextlib.contextmanager
def _pool(config: RunConfig) -> Iterator[Score]:
    """Yield what scores with the run's own reward workers."""
    with asyncio.Runner() as runner:
        pool = RewardPool(config.reward, start_limit_s=config.deadlines.start_s)
        runner.run(pool.__aenter__())
        try:
            yield lambda sample: runner.run(pool.score(sample))
        finally:
            runner.run(pool.close())
