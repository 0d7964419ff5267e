"""The configuration's schema as data, read from the dataclasses: which keys there are and what each allows.

A section is a dataclass; where an annotation admits several, their `kind` tells them apart.
"""

import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from difflib import SequenceMatcher
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen

_PLAIN: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
}

_NEAR = 0.7
"""Below this similarity a key is no misspelling of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the schema."""

    path: str
    """Dotted, from the top."""
    kind: str | None
    """The kind of section it belongs to, where there are several."""
    allowed: str

    def __str__(self) -> str:
        owner = f" (kind {self.kind})" if self.kind else ""
        return f"{self.path}{owner}: {self.allowed}"


def fields_of(section: type) -> dict[str, Any]:
    """Return the annotations of a section by key."""
    return {key_of(name): hint for name, hint in get_type_hints(section, include_extras=True).items()}


def key_of(field: str) -> str:
    """Return the key of a field: what follows a word that Python keeps to itself, as in `async_`, is no part of it."""
    return field.removesuffix("_")


def field_of(key: str) -> str:
    """Return the field that holds a key; the inverse of `key_of`."""
    return f"{key}_" if iskeyword(key) else key


def defaults_of(section: type) -> dict[str, object]:
    """Return the values of keys that may be left out."""
    fields = dataclasses.fields(section)
    return {key_of(field.name): field.default for field in fields if field.default is not dataclasses.MISSING}


def options_of(annotation: object) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone."""
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else (annotation,)


def sections_of(annotation: object) -> tuple[type, ...]:
    """Return the sections an annotation admits; none for a plain value."""
    return tuple(option for option in options_of(annotation) if isinstance(option, type) and is_dataclass(option))


def kind_of(section: type) -> str | None:
    """Return the `kind` that a section is chosen by."""
    kinds = get_args(fields_of(section).get("kind"))
    return kinds[0] if kinds else None


def keys_of(section: type, at: str = "", kind: str | None = None) -> Iterator[Key]:
    """Yield every key under a section, nested ones included, sections left out."""
    for name, annotation in fields_of(section).items():
        path = join(at, name)
        sections = sections_of(annotation)
        if not sections:
            yield Key(path=path, kind=kind, allowed=allowed(annotation))
        for inner in sections:
            yield from keys_of(inner, path, kind_of(inner) if len(sections) > 1 else kind)


def allowed(annotation: object) -> str:
    """Say in words which values an annotation admits."""
    options = options_of(annotation)
    if types.NoneType in options:
        return " or ".join([*(allowed(option) for option in options if option is not types.NoneType), "null"])
    if sections := sections_of(annotation):
        if len(sections) == 1:
            return f"a section with {', '.join(fields_of(sections[0]))}"
        return f"a section whose kind is {one_of(kind_of(section) for section in sections)}"
    return _allowed_value(annotation)


def _allowed_value(annotation: Any) -> str:  # noqa: ANN401 - an annotation
    match get_origin(annotation), get_args(annotation):
        case origin, (item, _) if origin is tuple:
            return f"a list, each item {allowed(item)}"
        case origin, values if origin is Literal:
            return one_of(values)
        case origin, (plain, *bounds) if origin is Annotated:
            return f"{_PLAIN[plain]} {_within(bounds)}"
        case _:
            return _PLAIN[annotation]


def one_of(values: Iterable[object]) -> str:
    """List values to choose from."""
    listed = [shown(value) for value in values]
    return f"one of {', '.join(listed)}" if len(listed) > 1 else f"only {listed[0]}"


def shown(value: object) -> str:
    """Write a value as YAML would, text and paths in quotes."""
    words: dict[object, str] = {True: "true", False: "false"}
    if value is None:
        return "null"
    return words[value] if isinstance(value, bool) else repr(str(value) if isinstance(value, Path) else value)


def join(at: str, name: str) -> str:
    """Return the dotted path of a key in the section `at`."""
    return f"{at}.{name}" if at else name


def nearest(path: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `path` most likely misspells: similar as a whole, and in its last part."""
    score, best = max(((_similarity(path, candidate), candidate) for candidate in candidates), default=(0.0, ""))
    return best if score >= _NEAR else None


def _similarity(path: str, candidate: str) -> float:
    whole = SequenceMatcher(None, path, candidate).ratio()
    last = SequenceMatcher(None, path.rpartition(".")[2], candidate.rpartition(".")[2]).ratio()
    return (whole + last) / 2


def _within(bounds: list[object]) -> str:
    match bounds:
        case [Ge(ge=low), Le(le=high)]:
            return f"from {low} to {high}"
        case _:
            return " and ".join(map(_bound, bounds))


def _bound(bound: object) -> str:
    match bound:
        case Ge(ge=limit):
            return f"of at least {limit}"
        case Gt(gt=limit):
            return f"above {limit}"
        case Lt(lt=limit):
            return f"below {limit}"
        case MinLen(min_length=limit):
            return f"of at least {limit} character{'s' if limit > 1 else ''}"
        case _:
            raise TypeError(f"the schema has no words for {bound!r}")
