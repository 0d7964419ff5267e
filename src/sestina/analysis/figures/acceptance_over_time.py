"""What drafts gain while a rollout goes on."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.curves import origin_of
from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.core.errors import DataError
from sestina.telemetry.traces import ChunkRow

BINS = 10


def acceptance_over_time(runs: Sequence[Run], step: int | None = None) -> Picture:
    """Draw the tokens that a response gains in an engine step, over a step's time; the last step by default."""
    with drawn() as (figure, [axes]):
        gains: list[str] = []
        for index, run in enumerate(runs):
            requests, chunks = run.rows_of(step or run.steps[-1])
            if not any(row.drafted_tokens for row in chunks):
                raise DataError(f"{run.path}: nothing was drafted in step {step or run.steps[-1]}")
            at, lengths = _lengths(chunks, origin_of(requests, run.config.run.mode))
            axes.step(at, lengths, where="mid", marker="o", label=run.name, **line_of(index))
            gains.append(f"{run.name} {lengths[0]:.2f} at first and {lengths[-1]:.2f} at last")
        axes.axhline(1.0, color="#5f6770", linewidth=0.8)
        axes.set(xlabel="seconds since the batch was offered (end of chunk)", ylabel="tokens per engine step")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.legend(loc="best")
    return Picture(
        name="acceptance_over_time",
        title="Gain of drafts over time",
        caption="1 is decoding without drafts; a line that rises towards the end speeds up the tail: "
        + ", ".join(gains),
        figure=figure,
    )


def _lengths(chunks: Sequence[ChunkRow], origin_s: float) -> tuple[list[float], list[float]]:
    ends = np.array([row.finished_s - origin_s for row in chunks])
    tokens, accepted = (np.array([getattr(row, name) for row in chunks]) for name in ("tokens", "accepted_tokens"))
    edges = np.linspace(0.0, ends.max(), BINS + 1)
    bins = np.clip(np.searchsorted(edges, ends) - 1, 0, BINS - 1)
    filled = [b for b in range(BINS) if tokens[bins == b].sum()]
    drawn_tokens = [tokens[bins == b].sum() for b in filled]
    lengths = [float(t / max(1, t - accepted[bins == b].sum())) for t, b in zip(drawn_tokens, filled, strict=True)]
    return [float(edges[b] + edges[b + 1]) / 2 for b in filled], lengths
