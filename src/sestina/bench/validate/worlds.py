"""Runs in this process, emulated and simulated, each in a fresh directory."""

import io
import shutil
from pathlib import Path

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


class Worlds:
    """What predictions are made from is taken when it is first wanted; it mutates RUNS alone."""

    def __init__(self, say: Say) -> None:
        self._calibration = calibrate(_config(BASE, CALIBRATED, "calibration"), "validate", say)
        self.recording = self._emulated(CALIBRATED, "recording")
        self._drafted: dict[Setting, Path] = {}
        """Recordings with drafts, by their settings."""
        self._alone_s: dict[Setting, Seconds] = {}
        """Their makespans, simulated at the calibration's own pace."""

    def measured(self, setting: Setting, name: str) -> Outturn:
        """Emulate a setting; raises RunError when its responses are not the recording's."""
        run_dir = self._emulated(setting, name)
        check_lengths(run_dir, self.recording)
        return read_outturn(run_dir)

    def predicted(self, setting: Setting, name: str, pace: float) -> Outturn:
        """Simulate a setting, from the calibration and recordings alone, at a pace."""
        return self._simulated(setting, name, (*self._yields(setting), f"sim.hardware.pace={pace}"))

    def pace(self, setting: Setting, name: str) -> float:
        """Emulate a setting's recording once more; returns what it takes, over its simulation's makespan."""
        recorded = recording_of(setting)
        if recorded not in self._alone_s:
            alone = self._simulated(recorded, f"{name}-simulated", self._yields(recorded))
            self._alone_s[recorded] = alone["makespan"]
        return self.measured(recorded, name)["makespan"] / self._alone_s[recorded]

    def _emulated(self, setting: Setting, name: str) -> Path:
        return _run(("sim=emulated", "sim.controller=free", *BASE), setting, name)

    def _simulated(self, setting: Setting, name: str, further: tuple[str, ...]) -> Outturn:
        world = (
            "sim=simulated",
            "sim/hardware=calibrated",
            f"sim.hardware.path={self._calibration}",
            "sim/workload=recorded",
            f"sim.workload.path={self.recording}",
            *further,
            *BASE,
        )
        return read_outturn(_run(world, setting, name))

    def _yields(self, setting: Setting) -> tuple[str, ...]:
        """Return what a recording says of what drafts yield."""
        if setting.drafts is None:
            return ()
        recorded = drafting_of(setting)
        if recorded not in self._drafted:
            self._drafted[recorded] = self._emulated(recorded, f"recording-{len(self._drafted)}")
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
