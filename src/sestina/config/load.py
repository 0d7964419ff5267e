"""The strict loader: a composed configuration in, a frozen RunConfig out, or one error that lists every violation.

Each section is walked along its dataclass, so that unknown, missing and refused keys are all found and named by their
dotted path; pydantic judges the values (strictly: no text for a number, no 1.5 for a whole number) and builds the
result. Rules between keys are judged on the values found valid.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args

from omegaconf import DictConfig
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sestina.config.fit import misfits
from sestina.config.plain import MISSING, Unresolved, plain
from sestina.config.rules import broken_rules
from sestina.config.run import RunConfig
from sestina.config.schema import (
    allowed,
    defaults_of,
    field_of,
    fields_of,
    join,
    keys_of,
    kind_of,
    nearest,
    one_of,
    options_of,
    sections_of,
    shown,
)
from sestina.core.errors import ConfigError

_RUN = TypeAdapter(RunConfig)


def load(config: DictConfig | Mapping[str, Any]) -> RunConfig:
    """Return the configuration that Hydra composed or a file holds; raises ConfigError with every violation."""
    tree = plain(config)
    check = _Check()
    check.section((RunConfig,), tree, "")
    violations = check.violations + broken_rules(check.valid)
    if check.violations:
        raise ConfigError(violations)
    fields = {field_of(key): value for key, value in tree.items()}
    run = _RUN.validate_json(json.dumps(fields), strict=True, extra="forbid")
    if violations := violations + misfits(run):
        raise ConfigError(violations)
    return run


class _Check:
    """Collects violations, and the valid values by dotted path."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.valid: dict[str, Any] = {}

    def section(self, options: tuple[type, ...], given: Mapping[str, object], at: str) -> None:
        chosen = self._choose(options, given, at)
        known = list(dict.fromkeys(name for option in ([chosen] if chosen else options) for name in fields_of(option)))
        kind = f" of kind {shown(kind_of(chosen))}" if chosen and len(options) > 1 else ""
        has = f"{at or 'the configuration'}{kind} has {', '.join(known)}"
        for name, value in given.items():
            if name not in known:
                self._unknown(join(at, name), value, has)
        if chosen is None:
            return
        defaults = defaults_of(chosen)
        for name, annotation in fields_of(chosen).items():
            value = given.get(name, defaults.get(name, MISSING))
            self._value(annotation, value, join(at, name))

    def _choose(self, options: tuple[type, ...], given: Mapping[str, object], at: str) -> type | None:
        if len(options) == 1:
            return options[0]
        kind = given.get("kind", MISSING)
        for option in options:
            if kind_of(option) == kind:
                return option
        self._refuse(join(at, "kind"), kind, one_of(kind_of(option) for option in options))
        return None

    def _value(self, annotation: object, value: object, path: str) -> None:
        sections = sections_of(annotation)
        if sections and isinstance(value, dict):
            self.section(sections, cast("dict[str, object]", value), path)
        elif sections and value is None and NoneType in options_of(annotation):
            self.valid[path] = None
        elif sections or value == MISSING or isinstance(value, Unresolved):
            self._refuse(path, value, allowed(annotation))
        else:
            self._leaf(annotation, value, path)

    def _leaf(self, annotation: object, value: object, path: str) -> None:
        if value == "" and Path in options_of(annotation):  # Path("") would be the current directory
            self._refuse(path, value, allowed(annotation))
            return
        try:
            # A value JSON has no form for becomes an object, which no key admits.
            text = json.dumps(value, default=lambda _: {})
            self.valid[path] = _adapter(annotation).validate_json(text, strict=True)
        except ValidationError:
            # YAML reads a bare off as false.
            quote = "; in YAML, 'off' needs its quotes" if value is False and "off" in get_args(annotation) else ""
            self._refuse(path, value, allowed(annotation) + quote)

    def _refuse(self, path: str, value: object, admitted: str) -> None:
        match value:
            case Unresolved():
                self.violations.append(f"{path}: {value} cannot be resolved: {value.reason}; {admitted}")
            case str() if value == MISSING:
                self.violations.append(f"{path}: must be given; {admitted}")
            case _:
                self.violations.append(f"{path}: {shown(value)} is not allowed; {admitted}")

    def _unknown(self, path: str, value: object, has: str) -> None:
        if value and isinstance(value, dict):
            for name, inner in cast("dict[str, object]", value).items():
                self._unknown(join(path, name), inner, has)
            return
        near = nearest(path, {key.path for key in keys_of(RunConfig)})
        # A key of another kind of this section is its own nearest.
        hint = has if near in {None, path} else f"did you mean '{near}'?"
        self.violations.append(f"{path}: unknown key; {hint}")


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - an annotation
    return TypeAdapter[Any](annotation, config=ConfigDict(allow_inf_nan=False))
