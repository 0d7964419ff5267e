from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from sestina.config.arguments import prepare_arguments
from sestina.config.load import load
from sestina.core.errors import ConfigError

CONF = Path(__file__).parents[3] / "conf"

FILES = ("data=files", "data.path=prompts.jsonl", "reward=math")
"""The smallest run on prompts from a file."""


def composed(*argv: str, conf_dir: Path = CONF) -> DictConfig:
    """What Hydra makes of a command line, as a launch script asks it."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir)):
        return compose("train", prepare_arguments(argv, conf_dir))


_composed_once = cache(composed)


def changed(*changes: str, argv: tuple[str, ...] = ()) -> DictConfig:
    """A composed configuration with `a.b=value` changes, without asking Hydra each time."""
    config = _composed_once(*argv).copy()
    for change in changes:
        key, _, value = change.partition("=")
        OmegaConf.update(config, key, OmegaConf.create(f"v: {value}")._get_node("v"), merge=False, force_add=True)
    return config


def violations(*changes: str, argv: tuple[str, ...] = ()) -> list[str]:
    """Every violation the loader finds."""
    with pytest.raises(ConfigError) as error:
        load(changed(*changes, argv=argv))
    return error.value.violations
