"""Runs in this process, emulated and simulated, each in a fresh directory."""

import io
import shutil
from pathlib import Path

from rich.console import Console

from sestina.bench.turns import Say
from sestina.bench.validate.outturn import Outturn, check_lengths, read_acceptance, read_outturn
from sestina.bench.validate.settings import BASE, Drafts, Setting, recording_of
from sestina.config.run import RunConfig
from sestina.config.sweep import runs_of
from sestina.controller.calibrate import calibrate
from sestina.simulator.run import simulate

CONF = Path("conf")
RUNS = Path("runs/bench/validate")


class Worlds:
    """What predictions are made from is taken when it is first wanted; it mutates RUNS alone."""

    def __init__(self, say: Say) -> None:
        self._calibration = calibrate(_config(BASE, recording_of(None), "calibration"), "validate", say)
        self.recording = self.emulated(recording_of(None), "recording")
        self._accepted: dict[Drafts, tuple[float, float]] = {}

    def emulated(self, setting: Setting, name: str) -> Path:
        """Emulate a setting; returns its directory."""
        return _run(("sim=emulated", "sim.controller=free", *BASE), setting, name)

    def measured(self, setting: Setting, name: str) -> Outturn:
        """Emulate a setting; raises RunError when its responses are not the recording's."""
        run_dir = self.emulated(setting, name)
        check_lengths(run_dir, self.recording)
        return read_outturn(run_dir)

    def predicted(self, setting: Setting, name: str) -> Outturn:
        """Simulate a setting, from the calibration and recordings alone."""
        world = (
            "sim=simulated",
            "sim/hardware=calibrated",
            f"sim.hardware.path={self._calibration}",
            "sim/workload=recorded",
            f"sim.workload.path={self.recording}",
            *self._acceptance(setting.drafts),
            *BASE,
        )
        return read_outturn(_run(world, setting, name))

    def _acceptance(self, drafts: Drafts) -> tuple[str, ...]:
        if drafts is None:
            return ()
        if drafts not in self._accepted:
            self._accepted[drafts] = read_acceptance(self.emulated(recording_of(drafts), f"recording-{drafts[0]}"))
        tokens, drafted = self._accepted[drafts]
        return (
            f"sim.acceptance.draft_tokens={drafts[1]}",
            "sim.acceptance.siblings=[0]",
            f"sim.acceptance.tokens_per_step=[{tokens}]",
            f"sim.acceptance.drafted_per_step=[{drafted}]",
        )


def _run(world: tuple[str, ...], setting: Setting, name: str) -> Path:
    config = _config(world, setting, name)
    shutil.rmtree(config.dir, ignore_errors=True)
    simulate(config, Console(file=io.StringIO()))
    return config.dir


def _config(world: tuple[str, ...], setting: Setting, name: str) -> RunConfig:
    (config,) = runs_of([*world, *setting.overrides, f"dir={RUNS / name}"], CONF.absolute())
    return config
