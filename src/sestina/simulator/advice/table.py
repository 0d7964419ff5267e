"""Advice as a table, a Parquet file, and lines to paste."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.table import Table

from sestina.core.units import Seconds
from sestina.simulator.compare import shown_s
from sestina.simulator.prediction import Prediction
from sestina.telemetry.aside import written_aside

ADVICE, OVERRIDES = "advice.parquet", "advice.txt"

_COLUMNS = ("", "step", "rollout", "tail", "train", "weights", "tokens/s", "gain", "bottleneck")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """A point that is among the best."""

    overrides: str
    """What to add to the user's command line; nothing for the user's own configuration."""
    prediction: Prediction
    gain: float | None
    """The step of the user's own configuration over this one's; None where that one is refused."""
    bottleneck: str


def table_of(advised: Sequence[Advised], uncalibrated: Sequence[str]) -> Table:
    """Return the points, best first; says what they rest on that nobody measured."""
    shown = Table(
        title="simulated, seconds of a step",
        title_justify="left",
        box=box.SIMPLE,
        caption_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    shown.caption = f"not calibrated: {', '.join(uncalibrated)}" if uncalibrated else "all calibrated"
    for name in _COLUMNS:
        shown.add_column(name, justify="left" if name == "bottleneck" else "right")
    for place, each in enumerate(advised, start=1):
        gain = "-" if each.gain is None else f"{each.gain:.2f}x"
        shown.add_row(
            f"{place}", *map(_shown, spans_of(each.prediction)), f"{each.prediction.tokens_per_s:,.0f}", gain,
            each.bottleneck,
        )  # fmt: skip
    return shown


def _shown(span: Seconds | None) -> str:
    return "-" if span is None else shown_s(span)


def spans_of(prediction: Prediction) -> tuple[Seconds | None, ...]:
    """Return step, rollout, tail, train and weights; rollout is what the trainer waits for where steps overlap."""
    return (
        prediction.step_s,
        prediction.rollout_s,
        prediction.tail_s,
        prediction.train_s,
        prediction.weights_s,
    )


def lines_of(advised: Sequence[Advised]) -> list[str]:
    """Return the overrides of each point, numbered as in the table."""
    return [f"{place}: {each.overrides or '(as configured)'}" for place, each in enumerate(advised, start=1)]


def write_advice(advised: Sequence[Advised], folder: Path) -> None:
    """Write the points, best first: all of each as Parquet, and overrides alone as text, a line for each."""
    rows = [
        {"overrides": each.overrides, "gain": each.gain, "bottleneck": each.bottleneck}
        | dataclasses.asdict(each.prediction)
        for each in advised
    ]
    with written_aside(folder / ADVICE) as aside:
        pq.write_table(pa.Table.from_pylist(rows), aside, compression="zstd")
    with written_aside(folder / OVERRIDES) as aside:
        aside.write_text("".join(f"{each.overrides}\n" for each in advised), encoding="utf-8")
