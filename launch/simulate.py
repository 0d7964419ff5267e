"""Simulates a run's rollouts: python launch/simulate.py sim.world=simulated +exp=seer_qwen72b [key=value ...]."""

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig
from rich.console import Console

from sestina.config.arguments import prepare_arguments
from sestina.config.load import load
from sestina.core.errors import SestinaError
from sestina.simulator.run import simulate

CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(composed: DictConfig) -> None:
    """Simulate one configuration; exits with 2 when it cannot be honoured, 1 when the simulation failed."""
    try:
        simulate(load(composed), Console(soft_wrap=True))
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    try:
        world = "simulated" if "sim.world=simulated" in sys.argv else "emulated"
        chosen = any(argument.startswith("sim=") for argument in sys.argv)
        # Behind the others, since nothing but flags may stand before --multirun.
        sys.argv[1:] = prepare_arguments([*sys.argv[1:], *([] if chosen else [f"sim={world}"])], CONF)
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    main()
