"""Figures with what is asked of them."""

from sestina.telemetry.measurements import Figure


def at_least(name: str, value: float, unit: str, bound: float | None) -> Figure:
    """Return a figure that must reach `bound`; None asks nothing."""
    if bound is None:
        return stated(name, value, unit)
    return Figure(name=name, value=value, unit=unit, must=f">= {bound:g}", met=value >= bound)


def at_most(name: str, value: float, unit: str, bound: float) -> Figure:
    """Return a figure that must not exceed `bound`."""
    return Figure(name=name, value=value, unit=unit, must=f"<= {bound:g}", met=value <= bound)


def below(name: str, value: float, unit: str, bound: float) -> Figure:
    """Return a figure that must stay under `bound`."""
    return Figure(name=name, value=value, unit=unit, must=f"< {bound:g}", met=value < bound)


def stated(name: str, value: float, unit: str) -> Figure:
    """Return a figure of which nothing is asked."""
    return Figure(name=name, value=value, unit=unit, must=None, met=None)
