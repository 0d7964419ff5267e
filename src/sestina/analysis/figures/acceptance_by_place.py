"""Which tokens of a draft are accepted."""

from collections.abc import Sequence

from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.analysis.shares import shares_of
from sestina.controller.draft_metrics import PLACES


def acceptance_by_place(runs: Sequence[Run]) -> Picture:
    """Draw the share accepted of the N-th token of drafts, one line for each run and source; means over steps."""
    found = shares_of(runs, "acceptance_at_", [str(place) for place in PLACES])
    with drawn() as (figure, [axes]):
        for index, (label, shares) in enumerate(found.items()):
            places = [int(name) for name in shares]
            axes.plot(places, [100 * share for share in shares.values()], marker="o", label=label, **line_of(index))
        axes.set_xscale("log", base=2)
        axes.set_xticks(PLACES, [str(place) for place in PLACES])
        axes.set(xlabel="place in the draft", ylabel="accepted (%), all before it accepted", ylim=(0, 102))
        axes.legend(loc="best")
    firsts = ", ".join(f"{label} {100 * next(iter(shares.values())):.0f} %" for label, shares in found.items())
    return Picture(
        name="acceptance_by_place",
        title="Acceptance by place in the draft",
        caption=f"Where a line stays high longer drafts pay, where it falls they are wasted; first tokens: {firsts}.",
        figure=figure,
    )
