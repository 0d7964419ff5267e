"""How many responses are finished, over time."""

from collections.abc import Sequence

from sestina.analysis.curves import completed, origin_of
from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.telemetry.traces import tail_start


def completion(runs: Sequence[Run], step: int | None = None) -> Picture:
    """Draw the share of a step's responses that are finished, one line for each run; the last step by default."""
    with drawn() as (figure, [axes]):
        shares: list[str] = []
        for index, run in enumerate(runs):
            requests, _ = run.rows_of(step or run.steps[-1])
            origin_s = origin_of(requests, run.config.run.mode)
            at, share = completed(requests, origin_s)
            axes.step(at, share, where="post", label=run.name, **line_of(index))
            tail_s = at[-1] - tail_start([row.finished_s - origin_s for row in requests])
            shares.append(f"{run.name} {100 * tail_s / max(at[-1], 1e-12):.0f} %")
        axes.axhline(0.9, color="#5f6770", linewidth=0.8)
        axes.annotate("90 %", (0, 0.9), xytext=(2, 2), textcoords="offset points", fontsize=8, color="#5f6770")
        axes.set(xlabel="seconds since the batch was offered", ylabel="share of responses finished", ylim=(0, 1.02))
        axes.set_xlim(left=0)
        axes.legend(loc="lower right")
    return Picture(
        name="completion",
        title="Completion",
        caption="A flat end above the line at 90 % is the tail; its share of the rollout's time: " + ", ".join(shares),
        figure=figure,
    )
