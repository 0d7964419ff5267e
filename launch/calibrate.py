"""Measures what steps of a run's engine take here: python launch/calibrate.py +exp=NAME [key=value ...].

Writes out/calibration/NAME.json, which `draft.calibration=out/calibration/NAME.json` lets a run use.
"""

import sys
from functools import partial
from pathlib import Path

from sestina.config.sweep import names_of, runs_of
from sestina.controller.calibrate import calibrate
from sestina.core.errors import SestinaError

CONF = Path(__file__).resolve().parent.parent / "conf"


def main(argv: list[str]) -> None:
    """Calibrate the engine of every run of a command line."""
    runs = runs_of(argv, CONF)
    for run, name in zip(runs, names_of(runs), strict=True):
        print(calibrate(run, name, partial(print, flush=True)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
