"""Running requests, keys and values, and preemptions over time (Seer, figures 3 and 9)."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.curves import happened, kv_tokens, origin_of, running
from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run


def occupancy(runs: Sequence[Run], step: int | None = None) -> Picture:
    """Draw three panels of one step, one line for each run; the last step by default."""
    with drawn(3, 1, height=6.6, sharex=True) as (figure, (top, middle, bottom)):
        uses: list[str] = []
        for index, run in enumerate(runs):
            requests, chunks = run.rows_of(step or run.steps[-1])
            origin_s, style = origin_of(requests, run.config.run.mode), line_of(index)
            top.step(*running(chunks, origin_s), where="post", label=run.name, **style)
            at, held = kv_tokens(requests, chunks, origin_s)
            share = 100 * held / (run.kv_capacity_tokens * run.config.rollout.num_instances)
            middle.plot(at, share, label=run.name, **style)
            ends = [row.finished_s for row in chunks]
            bottom.step(*happened(ends, [row.preemptions for row in chunks], origin_s), where="post", **style)
            uses.append(f"{run.name} {np.mean(share):.0f} %")
        top.set(ylabel="requests running")
        middle.set(ylabel="KV of what runs (%)")
        bottom.set(ylabel="preemptions so far", xlabel="seconds since the batch was offered")
        for axes in (top, middle, bottom):
            axes.set_xlim(left=0)
            axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        top.legend(loc="upper right", ncols=3)
    return Picture(
        name="occupancy",
        title="Requests, keys and values, preemptions",
        caption="Few requests and little KV at the end are the tail; preemptions, counted when their chunk ends, are a "
        "lack of KV, as is more than 100 % of it (a prompt counts for each response to it); means: " + ", ".join(uses),
        figure=figure,
    )
