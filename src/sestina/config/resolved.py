"""The resolved configuration of a run as a file, and as dictionaries."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import yaml

from sestina.config.load import load
from sestina.config.run import RunConfig
from sestina.config.schema import join, key_of
from sestina.core.errors import ConfigError, RunDirError


def as_dict(config: RunConfig) -> dict[str, Any]:
    """Return nested dictionaries of plain values, as YAML and Weights & Biases take them."""
    return asdict(
        config, dict_factory=lambda items: {key_of(k): str(v) if isinstance(v, Path) else v for k, v in items}
    )


def as_flat_dict(config: RunConfig) -> dict[str, Any]:
    """Return plain values by dotted key."""
    return _flatten(as_dict(config), "")


def write_resolved(config: RunConfig, path: Path) -> None:
    """Write what `read_resolved` reads back to an equal configuration."""
    path.write_text(yaml.safe_dump(as_dict(config), sort_keys=False), encoding="utf-8")


def read_resolved(path: Path) -> RunConfig:
    """Read a resolved configuration; raises RunDirError for an unreadable file, ConfigError for a bad one."""
    try:
        tree: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RunDirError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(tree, dict):
        raise RunDirError(f"{path}: expected keys and values, found {type(tree).__name__}")
    try:
        return load(cast("dict[str, Any]", tree))
    except ConfigError as error:
        raise ConfigError([f"{path}: {violation}" for violation in error.violations]) from None


def _flatten(section: Mapping[str, Any], at: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in section.items():
        inner = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None
        flat |= {join(at, name): value} if inner is None else _flatten(inner, join(at, name))
    return flat
