"""Composed configuration -> plain dictionaries, with interpolations resolved; what cannot be resolved is marked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

MISSING = "???"
"""Stands for a value that must be given."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Unresolved:
    """An interpolation that leads nowhere."""

    text: str
    reason: str

    def __repr__(self) -> str:
        return repr(self.text)


def plain(config: DictConfig | Mapping[str, Any]) -> dict[str, object]:
    """Return nested dictionaries of plain values, Unresolved, and MISSING; mutates nothing."""
    return {str(key): _value(config, key) for key in config}


def _value(section: DictConfig | Mapping[str, Any], key: Any) -> object:  # noqa: ANN401 - YAML keys need not be text
    if isinstance(section, DictConfig) and OmegaConf.is_missing(section, key):
        return MISSING
    try:
        value: object = section[key]
    except InterpolationResolutionError as error:
        raw = OmegaConf.to_container(cast("DictConfig", section), resolve=False)
        return Unresolved(text=str(cast("dict[Any, object]", raw)[key]), reason=str(error).partition("\n")[0])
    if isinstance(value, ListConfig):
        return OmegaConf.to_container(value, resolve=False)
    if isinstance(value, Mapping):
        return plain(cast("Mapping[str, Any]", value))
    return value
