"""What the length of chunks does to throughput, tail and prefilling."""

from collections.abc import Sequence

from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.analysis.totals import totals_of


def chunk_sizes(runs: Sequence[Run]) -> Picture:
    """Draw three panels over `rollout.chunk_tokens`, one point for each run."""
    ordered = sorted(runs, key=lambda run: run.config.rollout.chunk_tokens)
    sizes = [run.config.rollout.chunk_tokens for run in ordered]
    totals = [totals_of(run) for run in ordered]
    rates = [each.tokens_per_s for each in totals]
    panels = (
        ("tokens per second", rates),
        ("tail (% of rollout time)", [100 * each.tail_s / each.seconds for each in totals]),
        ("tokens prefilled for a token", [each.prefilled_tokens / each.tokens for each in totals]),
    )
    with drawn(1, 3, height=3.2) as (figure, all_axes):
        for index, (axes, (label, values)) in enumerate(zip(all_axes, panels, strict=True)):
            axes.plot(sizes, values, marker="osD"[index], **line_of(index))
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            axes.set(xlabel="chunk (tokens)", ylabel=label, ylim=(0, 1.1 * max(*values, 1e-9)))
    best = sizes[rates.index(max(rates))]
    return Picture(
        name="chunk_sizes",
        title="Chunk size",
        caption=f"Short chunks balance instances and prefill again more often; {best} tokens had the highest "
        f"throughput here, {max(rates):,.0f} tokens/s against {min(rates):,.0f} at the lowest.",
        figure=figure,
    )
