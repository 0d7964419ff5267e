"""A configuration with other values for some of its keys, and those as a user would write them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from sestina.config.load import load
from sestina.config.resolved import as_dict
from sestina.config.run import RunConfig
from sestina.config.schema import shown

Changes: TypeAlias = Mapping[str, object]
"""Values by dotted key."""


def with_changes(config: RunConfig, changes: Changes) -> RunConfig:
    """Return the configuration with other values; raises ConfigError with all that the loader has against it."""
    tree = as_dict(config)
    for key, value in changes.items():
        *sections, name = key.split(".")
        section: dict[str, Any] = tree
        for each in sections:
            section = section[each]
        section[name] = value
    return load(tree)


def as_overrides(changes: Changes) -> str:
    """Write changes for a command line."""
    return " ".join(f"{key}={value if isinstance(value, str) else shown(value)}" for key, value in changes.items())
