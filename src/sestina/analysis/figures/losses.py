"""Why instances compute nothing, by cause."""

from collections.abc import Sequence

from sestina.analysis.picture import Picture, area_of, drawn
from sestina.analysis.run import Run
from sestina.core.errors import DataError
from sestina.telemetry.idle import Idle
from sestina.telemetry.report import CAUSE_LABELS


def losses(runs: Sequence[Run]) -> Picture:
    """Draw what became of the instances' time, all steps of a run together: one bar of 100 % for each run.

    Raises DataError when none is a synchronous run.
    """
    found = {run.name: idle for run in runs if (idle := [i for step in run.steps if (i := run.idle(step))])}
    if not found:
        raise DataError("losses are known of synchronous runs alone, and none is among those given")
    shares = {name: _shares(idle) for name, idle in found.items()}
    with drawn(height=1.9 + 0.5 * len(found)) as (figure, [axes]):
        for index, label in enumerate(next(iter(shares.values()))):
            left = [sum(list(share.values())[:index]) for share in shares.values()]
            widths = [share[label] for share in shares.values()]
            axes.barh(range(len(shares)), widths, left=left, height=0.6, label=label, **area_of(index))
        axes.set_yticks(range(len(shares)), list(shares))
        axes.invert_yaxis()
        axes.set(xlabel="instance-seconds (% of instances x time)", xlim=(0, 100))
        axes.grid(visible=False, axis="y")
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    worst = {name: max(list(share)[1:], key=share.__getitem__) for name, share in shares.items()}
    return Picture(
        name="losses",
        title="Where the instances' time went",
        caption="Dark is the time in which tokens were computed for the first time; most of the rest is lost to: "
        + ", ".join(f"{name}: {label} ({shares[name][label]:.0f} %)" for name, label in worst.items()),
        figure=figure,
    )


def _shares(steps: Sequence[Idle]) -> dict[str, float]:
    area_s = sum(idle.area_s for idle in steps)
    parts = {"tokens": sum(idle.useful_s for idle in steps)}
    parts |= {label: sum(idle.lost_s[cause] for idle in steps) for cause, label in CAUSE_LABELS}
    return {label: 100 * span / area_s for label, span in parts.items()}
