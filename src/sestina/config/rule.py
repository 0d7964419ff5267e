"""What a rule between keys is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A demand on one key that depends on others."""

    needs: tuple[str, ...]
    """Dotted paths; the first is the one to blame."""
    check: Callable[..., str | None]
    """Takes the values of `needs`; None, or what would be allowed for the first."""


def at_most(value: float, limit: float) -> str | None:
    """Check that one value is not above another."""
    return f"at most {limit}" if value > limit else None
