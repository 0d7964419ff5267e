"""Ways of scheduling the same work, side by side (Seer, figures 8 and 10)."""

import math
from collections.abc import Sequence

from sestina.analysis.picture import Picture, area_of, bars, drawn
from sestina.analysis.run import Run
from sestina.analysis.totals import Totals, totals_of


def scheduling(runs: Sequence[Run]) -> Picture:
    """Draw throughput, and time with the tail as a part of it, one bar for each run."""
    names, totals = [run.name for run in runs], [totals_of(run) for run in runs]
    with drawn(1, 2, height=3.4) as (figure, (left, right)):
        bars(left, names, [each.tokens_per_s for each in totals], "{:,.0f}")
        left.set(ylabel="tokens per second of rollout")
        bodies = [each.seconds - each.tail_s for each in totals]
        right.bar(range(len(names)), bodies, width=0.6, label="until 90 % had finished", **area_of(4))
        tails = [each.tail_s for each in totals]
        right.bar(range(len(names)), tails, bottom=bodies, width=0.6, label="the last 10 %", **area_of(1))
        right.set_xticks(range(len(names)), names, rotation=20 if len(names) > 3 else 0)  # noqa: PLR2004 - they fit
        right.set(ylabel="seconds of rollout")
        right.grid(visible=False, axis="x")
        right.margins(y=0.25)
        right.legend(loc="upper left")
    changes = ", ".join(f"{name} {_change(totals[0], each)}" for name, each in zip(names[1:], totals[1:], strict=True))
    return Picture(
        name="scheduling",
        title="Scheduling",
        caption=f"Against {names[0]}, on the same work if lengths were forced: {changes or 'nothing to compare'}.",
        figure=figure,
    )


def _change(first: Totals, other: Totals) -> str:
    """Say what became of throughput, and of the tail where both have one: fewer than 10 responses have none."""
    throughput = f"{other.tokens_per_s / first.tokens_per_s:.2f} times the throughput"
    if not (first.tail_s > 0 and math.isfinite(other.tail_s)):
        return throughput
    return f"{throughput} and {100 * (other.tail_s / first.tail_s - 1):+.0f} % of tail"
