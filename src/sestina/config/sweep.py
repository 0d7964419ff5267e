"""A command line -> every run it asks for, all checked: a sweep has no first run before its last one is valid."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sestina.config.arguments import MULTIRUN, prepare_arguments
from sestina.config.load import load
from sestina.config.run import RunConfig
from sestina.core.errors import ConfigError


def runs_of(argv: Sequence[str], conf_dir: Path) -> list[RunConfig]:
    """Compose and load every run of a command line; raises ConfigError with all violations of all of them."""
    prepared = prepare_arguments(argv, conf_dir)
    flags = [argument for argument in prepared if argument.startswith("-") and argument not in MULTIRUN]
    if flags:
        raise ConfigError([f"{flag!r} is Hydra's, and not known here" for flag in flags])
    points = _points([argument for argument in prepared if argument not in MULTIRUN])
    runs: list[RunConfig] = []
    violations: list[list[str]] = []
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir)):
        for number, overrides in enumerate(points):
            try:
                runs.append(_load(overrides, number))
                violations.append([])
            except ConfigError as error:
                violations.append(error.violations)
    if any(violations):
        raise ConfigError(numbered(violations))
    return runs


def names_of(runs: Sequence[RunConfig]) -> list[str]:
    """Return a name for each run's files; runs of a sweep share theirs, and are told apart by their numbers."""
    names = [run.name for run in runs]
    shared = len(set(names)) < len(names)
    return [f"{name}_{number}" for number, name in enumerate(names)] if shared else names


def numbered(violations: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines about each run, with the run's number where there are several."""
    if len(violations) == 1:
        return list(dict.fromkeys(violations[0]))
    return [f"run {number}: {line}" for number, lines in enumerate(violations) for line in dict.fromkeys(lines)]


def _points(overrides: list[str]) -> list[list[str]]:
    parsed = OverridesParser.create().parse_overrides(overrides)
    (points,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    return [list(point) for point in points]


def _load(overrides: list[str], number: int) -> RunConfig:
    try:
        composed = compose("train", [*overrides, f"hydra.job.num={number}"], return_hydra_config=True)
        HydraConfig.instance().set_config(composed)  # what ${hydra:...} is resolved by
        own = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
        return load(own)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError([str(error).partition("\n")[0]]) from None
