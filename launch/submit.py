"""Trains on a cluster: python launch/submit.py +exp=NAME [key=value ...] [--multirun] [--dry-run | --local]."""

import sys
from pathlib import Path

from rich.console import Console

from sestina.cluster.foresee import presets_of
from sestina.cluster.show import show_jobs
from sestina.cluster.split import take_split_from, with_split
from sestina.cluster.submit import plan_jobs, submit_jobs
from sestina.config.sweep import runs_of
from sestina.controller.launcher import launch
from sestina.controller.preflight import prepare
from sestina.core.errors import ConfigError, SestinaError

CONF = Path(__file__).resolve().parent.parent / "conf"
OWN = {"--dry-run", "--local"}


def main(argv: list[str]) -> int:
    """Submit every run of a command line, or show what would be submitted, or run them here one after the other."""
    given = [argument for argument in argv if argument not in OWN]
    if not any(argument.lstrip("+").startswith("exp=") for argument in given):
        raise ConfigError([f"no experiment is named; add +exp=NAME, one of {', '.join(_experiments())}"])
    given, source = take_split_from(given)
    runs, console = runs_of(given, CONF), Console(soft_wrap=True)
    if source is not None:
        runs = with_split(runs, source, console)
    if "--local" in argv:
        for run in runs:  # all of them, before the first one takes hours
            prepare(run)
        return next((code for run in runs if (code := launch(run, console))), 0)
    if "--dry-run" in argv:
        show_jobs(plan_jobs(runs), console, presets_of(CONF))
    else:
        submit_jobs(plan_jobs(runs), console)
    return 0


def _experiments() -> list[str]:
    return sorted(path.stem for path in (CONF / "exp").glob("*.yaml"))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
