"""What each instance runs, chunk by chunk."""

from matplotlib.collections import PolyCollection

from sestina.analysis.curves import lanes_of, origin_of
from sestina.analysis.picture import Picture, drawn
from sestina.analysis.run import Run
from sestina.core.units import Seconds
from sestina.telemetry.traces import ChunkRow


def timeline(run: Run, step: int | None = None) -> Picture:
    """Draw every chunk of a step in the lanes of its instance; the last step by default."""
    requests, chunks = run.rows_of(step or run.steps[-1])
    origin_s, last = origin_of(requests, run.config.run.mode), max(requests, key=lambda row: row.finished_s)
    by_instance = [[row for row in chunks if row.instance == i] for i in range(run.config.rollout.num_instances)]
    with drawn(height=max(3.0, 0.9 + 0.55 * len(by_instance))) as (figure, [axes]):
        base, ticks = 0.0, []
        for mine in by_instance:
            lanes = lanes_of(mine)
            rows = max(lanes, default=0) + 1
            bars = [_bar(row, origin_s, base + lane / rows) for row, lane in zip(mine, lanes, strict=True)]
            heights = [(b[0], b[1], (b[1][0], b[1][1] + 0.9 / rows), (b[0][0], b[0][1] + 0.9 / rows)) for b in bars]
            late = [(row.group, row.sample) == (last.group, last.sample) for row in mine]
            colours = ["#12395b" if is_last else "#c5ced6" for is_last in late]
            axes.add_collection(PolyCollection(heights, facecolors=colours, edgecolors="white", linewidths=0.2))
            ticks.append(base + 0.45)
            base += 1.0
        axes.set_yticks(ticks, [str(i) for i in range(len(by_instance))])
        axes.set(xlabel="seconds since the batch was offered", ylabel="instance", ylim=(-0.1, base))
        axes.set_xlim(0, max((row.finished_s for row in chunks), default=origin_s + 1) - origin_s)
        axes.grid(visible=False, axis="y")
    return Picture(
        name="timeline",
        title=f"Timeline of {run.name}",
        caption=f"White is room that an instance does not use; dark is the response that ends last, g{last.group}/"
        f"s{last.sample} with {last.response_tokens} tokens in {last.num_chunks} chunks.",
        figure=figure,
    )


def _bar(row: ChunkRow, origin_s: Seconds, low: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return (row.started_s - origin_s, low), (row.finished_s - origin_s, low)
