"""Trains on this machine: python launch/train.py +exp=quickstart [key=value ...] [--multirun]."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from sestina.config.arguments import prepare_arguments
from sestina.config.load import load
from sestina.controller.launcher import launch
from sestina.core.errors import SestinaError

CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(composed: DictConfig) -> None:
    """Run one configuration; exits with 2 when it cannot be honoured, 1 when the run failed."""
    try:
        code = launch(load(composed))
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    if code:
        sys.exit(code)


if __name__ == "__main__":
    try:
        sys.argv[1:] = prepare_arguments(sys.argv[1:], CONF)
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    main()
