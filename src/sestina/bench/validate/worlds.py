"""Runs in this process, emulated and simulated, each in a fresh directory."""

import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from sestina.bench.turns import Say
from sestina.bench.validate.outturn import Outturn, check_lengths, read_outturn
from sestina.bench.validate.settings import BASE, Setting, drafting_of, recording_of
from sestina.config.run import RunConfig
from sestina.config.sweep import runs_of
from sestina.controller.calibrate import calibrate
from sestina.core.units import Seconds
from sestina.simulator.run import simulate

CONF = Path("conf")
RUNS = Path("runs/bench/validate")
CALIBRATED = recording_of(Setting(scheduler="divided", instances=1))
"""Of whose configuration the calibration is, and whose lengths all others are held to."""


World: TypeAlias = tuple[str, ...]
"""What steps of emulated engines take, on the command line."""
MEASURED: World = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """A setting in calibrated time."""

    predicted: Outturn
    emulated: Outturn


class Worlds:
    """What predictions are made from is taken when it is first wanted; it mutates RUNS alone."""

    def __init__(self, say: Say) -> None:
        self._calibration = calibrate(_config(BASE, CALIBRATED, "calibration"), "validate", say)
        self.recording = self._emulated(CALIBRATED, "recording")
        self._drafted: dict[tuple[Setting, World], Path] = {}
        """Recordings with drafts, by their settings and what their time was."""
        self._alone_s: dict[Setting, Seconds] = {}
        """Their makespans, simulated at the calibration's own pace."""

    def measured(self, setting: Setting, name: str) -> Outturn:
        """Emulate a setting; raises RunError when its responses are not the recording's."""
        run_dir = self._emulated(setting, name)
        check_lengths(run_dir, self.recording)
        return read_outturn(run_dir)

    def predicted(self, setting: Setting, name: str, pace: float) -> Outturn:
        """Simulate a setting, from the calibration and recordings alone, at a pace."""
        return self._simulated(setting, name, (*self._yields(setting, MEASURED), f"sim.hardware.pace={pace}"))

    def clocked(self, setting: Setting, name: str) -> Clocked:
        """Emulate and simulate a setting with steps that take what the calibration says, on no machine's time."""
        run_dir = self._emulated(setting, f"emulated-{name}", self._calibrated)
        check_lengths(run_dir, self.recording)
        return Clocked(
            predicted=self._simulated(setting, f"simulated-{name}", self._yields(setting, self._calibrated)),
            emulated=read_outturn(run_dir),
        )

    def pace(self, setting: Setting, name: str) -> float:
        """Emulate a setting's recording once more; returns what it takes, over its simulation's makespan."""
        recorded = recording_of(setting)
        if recorded not in self._alone_s:
            alone = self._simulated(recorded, f"{name}-simulated", self._yields(recorded, MEASURED))
            self._alone_s[recorded] = alone["makespan"]
        return self.measured(recorded, name)["makespan"] / self._alone_s[recorded]

    @property
    def _calibrated(self) -> World:
        return ("sim/hardware=calibrated", f"sim.hardware.path={self._calibration}")

    def _emulated(self, setting: Setting, name: str, world: World = MEASURED) -> Path:
        return _run(("sim=emulated", "sim.controller=free", *world, *BASE), setting, name)

    def _simulated(self, setting: Setting, name: str, further: tuple[str, ...]) -> Outturn:
        world = (
            "sim=simulated",
            *self._calibrated,
            "sim/workload=recorded",
            f"sim.workload.path={self.recording}",
            *further,
            *BASE,
        )
        return read_outturn(_run(world, setting, name))

    def _yields(self, setting: Setting, world: World) -> tuple[str, ...]:
        """Return what a recording, in the same kind of time, says of what drafts yield."""
        if setting.drafts is None:
            return ()
        recorded = drafting_of(setting), world
        if recorded not in self._drafted:
            self._drafted[recorded] = self._emulated(recorded[0], f"recording-{len(self._drafted)}", world)
        return (
            f"sim.acceptance.draft_tokens={setting.drafts[1]}",
            f"sim.acceptance.recording={self._drafted[recorded]}",
        )


def _run(world: tuple[str, ...], setting: Setting, name: str) -> Path:
    config = _config(world, setting, name)
    shutil.rmtree(config.dir, ignore_errors=True)
    simulate(config, Console(file=io.StringIO()))
    return config.dir


def _config(world: tuple[str, ...], setting: Setting, name: str) -> RunConfig:
    (config,) = runs_of([*world, *setting.overrides, f"dir={RUNS / name}"], CONF.absolute())
    return config
