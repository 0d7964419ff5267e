"""A figure with the sentence under it; readable without colours, since lines differ in dashes and areas in hatching."""

import base64
import html
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#5f6770"
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#12395b", "linestyle": "-"},
    {"color": "#d9730d", "linestyle": "--"},
    {"color": "#228833", "linestyle": "-."},
    {"color": "#aa3377", "linestyle": ":"},
    {"color": "#1f6fb4", "linestyle": (0, (6, 1, 1, 1, 1, 1))},
    {"color": "#888888", "linestyle": (0, (1, 2))},
)
"""They repeat beyond six runs."""
AREAS: tuple[dict[str, Any], ...] = (
    {"facecolor": "#12395b", "hatch": ""},
    {"facecolor": "#f2c9a1", "hatch": "//"},
    {"facecolor": "#4f9d69", "hatch": "\\\\"},
    {"facecolor": "#e9d5e4", "hatch": "xx"},
    {"facecolor": "#6fa8dc", "hatch": ".."},
    {"facecolor": "#f4f4f4", "hatch": ""},
    {"facecolor": "#9aa1a9", "hatch": "--"},
    {"facecolor": "#dfe6ec", "hatch": "++"},
    {"facecolor": "#ffffff", "hatch": "oo"},
)
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8a9097",
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": "#e6e8eb",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One figure; notebooks show it as it is on the page."""

    name: str
    title: str
    caption: str
    """What to see in it, one sentence."""
    figure: Figure

    def png(self) -> bytes:
        """Return it as PNG."""
        file = io.BytesIO()
        FigureCanvasAgg(self.figure).print_png(file)
        return file.getvalue()

    def html(self) -> str:
        """Return it as HTML that needs no other file."""
        image = base64.b64encode(self.png()).decode()
        title, caption = html.escape(self.title), html.escape(self.caption)
        return (
            f'<figure id="{self.name}"><img alt="{title}" src="data:image/png;base64,{image}">'
            f"<figcaption>{caption}</figcaption></figure>"
        )

    _repr_html_ = html


@contextmanager
def drawn(
    rows: int = 1,
    columns: int = 1,
    *,
    width: float = 9.0,
    height: float = 3.8,
    **options: Any,  # noqa: ANN401
) -> Iterator[tuple[Figure, list["Axes"]]]:
    """Give an empty figure of `width` x `height` inches and its axes, row by row, in the style of all."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def line_of(index: int) -> dict[str, Any]:
    """Return how the line of number `index` is drawn."""
    return LINES[index % len(LINES)]


def area_of(index: int) -> dict[str, Any]:
    """Return how the area of number `index` is filled."""
    return {**AREAS[index % len(AREAS)], "edgecolor": "#3a3f45", "linewidth": 0.5}


def bars(axes: "Axes", names: Sequence[str], values: Sequence[float], form: str = "{:.3g}") -> None:
    """Draw one bar for each name, its value above it."""
    drawn_bars = axes.bar(range(len(names)), values, width=0.6, **area_of(4))
    axes.bar_label(drawn_bars, labels=[form.format(value) for value in values], fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=20 if len(names) > 3 else 0)  # noqa: PLR2004 - they fit
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)
