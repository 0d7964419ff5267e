"""Runs a configuration on this machine: check, start the ranks, show what they do, report how it ended."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from sestina.config.run import DeadlinesConfig, RunConfig
from sestina.controller.deaths import DeathWatch
from sestina.controller.preflight import prepare
from sestina.controller.run_dir import STATUS, SUMMARY, RunDir
from sestina.controller.start import plan, write
from sestina.controller.store_watch import StoreWatch
from sestina.controller.world_process import WorldProcess, world_command, world_environment
from sestina.core.errors import ConfigError
from sestina.core.units import Seconds
from sestina.kvpool.config import LocalKvPoolConfig, pool_name
from sestina.kvpool.folder import clear, sweep
from sestina.kvpool.local import SHARED_MEMORY
from sestina.telemetry.display import LiveDisplay
from sestina.telemetry.figure import draw
from sestina.telemetry.report import summary
from sestina.telemetry.status import read_status

REFRESH_S: Seconds = 0.25
REPORT_S: Seconds = 2.0
"""For a rank that failed to report why and end the world itself; after that the launcher does."""
GONE_S: Seconds = 5.0
"""For ranks that were killed to be gone."""


def launch(config: RunConfig, console: Console | None = None) -> int:
    """Run to the end and return the exit code; raises a UserError before anything is written or started."""
    console = console or Console(soft_wrap=True)
    if config.sim is not None:
        raise ConfigError([f"sim: {config.sim.world!r} is given to a real run; launch/simulate.py simulates one"])
    config = dataclasses.replace(config, cluster=None)
    run_dir = RunDir(config.dir)
    start = plan(run_dir, config)
    if start.checkpoint is not None and start.step >= config.run.steps:
        console.print(
            f"{config.dir} has taken all {config.run.steps} steps already; raise run.steps to go on, "
            "or choose another name or dir"
        )
        console.print(summary(config.dir))
        return 0
    if isinstance(config.rollout.kv_pool, LocalKvPoolConfig):
        for parent in _parents(config.rollout.kv_pool):
            sweep(parent)  # what killed runs have left there is no room that is taken
    prepare(config)
    command = world_command(config, quiet=console.is_terminal)
    run_dir.hold()
    write(run_dir, config)
    run_dir.release()  # the controller holds it from here on
    if start.checkpoint is not None:
        console.print(f"continuing from {start.checkpoint}")
    with contextlib.ExitStack() as ending:
        store = StoreWatch(config, console)
        ending.callback(store.end)
        world = WorldProcess(command, world_environment(config) | store.environment)
        ending.pop_all()
    try:
        with _signals_to(world, run_dir), contextlib.closing(DeathWatch()) as deaths:
            _watch(world, run_dir, console, deaths, config.deadlines, store)
        return _conclude(world, run_dir, console, deaths)
    finally:
        world.kill()
        store.end()
        if isinstance(config.rollout.kv_pool, LocalKvPoolConfig):
            _clear_pool(config.rollout.kv_pool, pool_name(config.dir), console)


def _parents(pool: LocalKvPoolConfig) -> list[Path]:
    return [SHARED_MEMORY, *([] if pool.ssd_dir is None else [pool.ssd_dir])]


def _clear_pool(pool: LocalKvPoolConfig, name: str, console: Console) -> None:
    """Remove what ranks have left that were killed."""
    for parent in _parents(pool):
        if not clear(parent, name, GONE_S):
            console.print(f"waited {GONE_S:g} s for the ranks to be gone; {parent} may hold their keys and values")


def _watch(
    world: WorldProcess,
    run_dir: RunDir,
    console: Console,
    deaths: DeathWatch,
    limits: DeadlinesConfig,
    store: StoreWatch,
) -> None:
    """Pass on what the ranks print, and keep the display up, until the world has ended."""
    display = LiveDisplay(console) if console.is_terminal else contextlib.nullcontext()
    with display as live:
        began_s = time.monotonic()
        ended_s: Seconds | None = None
        died_s: Seconds | None = None
        while world.exit_code is None:
            for line in world.lines(REFRESH_S):
                console.out(line, highlight=False)
            store.look()
            status = read_status(run_dir.file(STATUS))
            if status is not None:
                deaths.add(status.ranks)
            if live is not None:
                live.update(status, time.time())
            over = status is not None and status.state in ("finished", "stopped", "failed")
            ended_s = (ended_s or time.monotonic()) if over else None
            if ended_s is not None and time.monotonic() - ended_s > limits.stop_s:
                console.print(f"waited {limits.stop_s:g} s for the ranks to leave; ending them")
                world.kill()
            died_s = (died_s or time.monotonic()) if deaths.first and not over else None
            if died_s is not None and time.monotonic() - died_s > REPORT_S:
                world.kill()
            if status is None and time.monotonic() - began_s > limits.start_s:
                console.print(f"waited {limits.start_s:g} s for all ranks to start; ending them")
                world.kill()
        for line in world.rest(REFRESH_S):
            console.out(line, highlight=False)
        if live is not None:
            live.update(read_status(run_dir.file(STATUS)), time.time())


def _conclude(world: WorldProcess, run_dir: RunDir, console: Console, deaths: DeathWatch) -> int:
    """Say how the run ended; an exit code of 0 needs the controller's own word that it is so."""
    status = read_status(run_dir.file(STATUS))
    code = world.exit_code or 0
    if code < 0:
        code = 128 - code  # as shells number an end by signal
    if world.asked_to_end:
        console.print(f"ended at once, as asked; everything so far is in {run_dir.path}")
        return 128 + signal.SIGINT
    if code == 0 and (status is None or status.state not in ("finished", "stopped")):
        console.print("the ranks have left before the run was finished")
        code = 1
    if code != 0:
        died = ", ".join(f"{rank.name} died" for rank in deaths.first)
        console.print(f"run failed with exit code {code}{died and ': '}{died}; everything so far is in {run_dir.path}")
        return code
    assert status is not None, "checked above"
    if status.step > 0:
        console.print(summary(run_dir.path))
        draw(run_dir.path, run_dir.file(SUMMARY))
        console.print(f"figure: {run_dir.file(SUMMARY)}")
    console.print(status.phase)
    return 0


@contextlib.contextmanager
def _signals_to(world: WorldProcess, run_dir: RunDir) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the controller to stop; the second one ends the world."""
    asked = False

    def pass_on(number: int, _: object) -> None:
        nonlocal asked
        if asked:
            world.interrupt(None)
            return
        asked = True
        status = read_status(run_dir.file(STATUS))
        world.interrupt(None if status is None else status.pid)

    before: dict[int, Callable[..., object] | int | None] = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
