"""Figures on the terminal."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table
from rich.text import Text

from sestina.telemetry.measurements import Figure

WHOLE_FROM = 1000
"""Values from here on are shown without decimals."""


def table(title: str, figures: Sequence[Figure]) -> Table:
    """Return figures with what is asked of them, under what their names share before the colon; misses in red."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE)
    shown.add_column("figure")
    shown.add_column("value", justify="right")
    shown.add_column("must be")
    shown.add_column("met")
    for subject, members in groupby(figures, key=lambda figure: figure.name.partition(": ")[0]):
        shown.add_row(Text(subject, "bold"))
        for figure in members:
            label = figure.name.removeprefix(f"{subject}: ")
            style = "red" if figure.met is False else None
            shown.add_row(f"  {label}", _value(figure), figure.must or "", _VERDICTS[figure.met], style=style)
    return shown


def _value(figure: Figure) -> str:
    number = f"{figure.value:,.0f}" if abs(figure.value) >= WHOLE_FROM else f"{figure.value:.4g}"
    return f"{number} {figure.unit}"


_VERDICTS = {True: "yes", False: "no", None: ""}
