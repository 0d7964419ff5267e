"""Rules between keys of the section `reward`, wherever it is read: in a run's configuration or by a reward server."""

from collections.abc import Callable
from typing import TypeAlias

KeyRule: TypeAlias = tuple[tuple[str, str], Callable[[float, float], str | None]]
"""Two keys, and what takes their values: None, or what would be allowed for the first."""


def _tests_end_first(timeout_s: float, run_s: float) -> str | None:
    return f"above {run_s:g}, after which slow code has its reward of 0" if timeout_s <= run_s else None


def _above(value: float, limit: float) -> str | None:
    return None if value > limit else f"above {limit:g}"


KEY_RULES: tuple[KeyRule, ...] = (
    (("timeout_s", "run_s"), _tests_end_first),
    (("max_score", "min_score"), _above),
)


def broken_rules(config: object) -> list[str]:
    """Return one line for each rule that a section breaks; one that lacks a rule's keys does not."""
    lines: list[str] = []
    for (key, other), check in KEY_RULES:
        if hasattr(config, key) and hasattr(config, other):
            value, beside = getattr(config, key), getattr(config, other)
            allowed = check(value, beside)
            if allowed is not None:
                lines.append(f"reward.{key}: {value} is not allowed with reward.{other} {beside}; {allowed}")
    return lines
