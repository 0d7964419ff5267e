"""How much finished siblings help a draft."""

from collections.abc import Sequence

from sestina.analysis.picture import Picture, drawn, line_of
from sestina.analysis.run import Run
from sestina.analysis.shares import shares_of
from sestina.controller.draft_metrics import SIBLINGS


def acceptance_by_siblings(runs: Sequence[Run]) -> Picture:
    """Draw the share of drafted tokens accepted, by responses of the group finished on the instance; step means."""
    found = shares_of(runs, "acceptance_siblings_", SIBLINGS)
    with drawn() as (figure, [axes]):
        for index, (label, shares) in enumerate(found.items()):
            at = [SIBLINGS.index(name) for name in shares]
            axes.plot(at, [100 * share for share in shares.values()], marker="s", label=label, **line_of(index))
        axes.set_xticks(range(len(SIBLINGS)), [_label(name) for name in SIBLINGS])
        axes.set(xlabel="finished responses of the group", ylabel="drafted tokens accepted (%)", ylim=(0, 102))
        axes.legend(loc="best")
    return Picture(
        name="acceptance_by_siblings",
        title="Acceptance by finished siblings",
        caption="A line that rises says that responses to a prompt resemble each other: drafts get better as siblings "
        "finish.",
        figure=figure,
    )


def _label(name: str) -> str:
    return f"{SIBLINGS[-1]} or more" if name == SIBLINGS[-1] else name.replace("_", " to ")
