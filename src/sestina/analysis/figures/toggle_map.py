"""Where drafts pay, in the plane of batch and context (EfficientRollout, section 4), with what was measured."""

from collections.abc import Sequence

import numpy as np

from sestina.analysis.picture import Picture, drawn
from sestina.core.errors import DataError
from sestina.policies.drafting.acceptance import FloatArray
from sestina.policies.drafting.calibration import Calibration, StepPoint

POINTS = 60


def toggle_map(calibration: Calibration, *, length: int, acceptance: float) -> Picture:
    """Draw the predicted gain of drafts of `length` tokens of which a share is accepted, and measured points.

    Raises DataError when the calibration has measured none of that length.
    """
    measured = _measured(calibration, length, acceptance)
    if not measured:
        lengths = sorted({point.length for point in calibration.points if point.kind == "verify"})
        raise DataError(f"drafts of {length} tokens were not measured; allowed are lengths {lengths}")
    batches, contexts = _around([b for b, _, _ in measured]), _around([s for _, s, _ in measured])
    gains = [[_gain(calibration, batch, context, length, acceptance) for batch in batches] for context in contexts]
    with drawn(height=4.4) as (figure, [axes]):
        shades = axes.contourf(batches, contexts, gains, levels=12, cmap="Greys", alpha=0.6)
        figure.colorbar(shades, ax=axes, label="predicted speedup")
        if np.min(gains) < 1 < np.max(gains):
            axes.contour(batches, contexts, gains, levels=[1.0], colors="#d9730d", linewidths=2)
        for pays, marker, face in ((True, "o", "#12395b"), (False, "X", "white")):
            found = [(b, s) for b, s, gain in measured if (gain >= 1) == pays]
            label = f"measured, drafts {'pay' if pays else 'do not pay'}"
            if found:
                axes.scatter(*zip(*found, strict=True), marker=marker, s=60, c=face, edgecolors="#12395b", label=label)
        axes.set(xscale="log", yscale="log", xlabel="sequences in a step", ylabel="context of each (tokens)")
        for axis, values in ((axes.xaxis, {b for b, _, _ in measured}), (axes.yaxis, {s for _, s, _ in measured})):
            axis.set_ticks(sorted(values), [str(value) for value in sorted(values)])
            axis.set_ticks([], minor=True)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=2)
    agreeing = sum((_gain(calibration, b, s, length, acceptance) >= 1) == (gain >= 1) for b, s, gain in measured)
    return Picture(
        name="toggle_map",
        title="Where drafts pay",
        caption=f"Drafts of {length} tokens, {100 * acceptance:.0f} % of them accepted, pay on the side of the line "
        f"where the speedup is above 1; {agreeing} of {len(measured)} measured points are on the side foretold.",
        figure=figure,
    )


def _around(values: Sequence[int]) -> FloatArray:
    return np.geomspace(0.8 * min(values), 1.25 * max(values), POINTS)


def _gain(calibration: Calibration, batch: float, context: float, length: int, acceptance: float) -> float:
    cost, sequences = calibration.cost, max(1, round(batch))
    kv_tokens = round(sequences * context)
    drafted_s = cost.speculative_s(sequences, kv_tokens, drafted=length * sequences, longest=length)
    return (1 + acceptance * length) * cost.plain_s(sequences, kv_tokens) / drafted_s


def _measured(calibration: Calibration, length: int, acceptance: float) -> list[tuple[int, int, float]]:
    """Return batch, context and gain of every point at which both plain steps and verification were timed."""
    by_kind = {(p.kind, p.batch, p.sequence_tokens, p.length): p for p in calibration.points}
    found: list[tuple[int, int, float]] = []
    for point in calibration.points:
        plain = by_kind.get(("plain", point.batch, point.sequence_tokens, 0))
        if point.kind == "verify" and point.length == length and plain is not None:
            drafting_s = _drafting_s(calibration, by_kind.get(("draft", *_place(point))), point)
            gain = (1 + acceptance * length) * plain.seconds / (point.seconds + drafting_s)
            found.append((point.batch, point.sequence_tokens, gain))
    return found


def _drafting_s(calibration: Calibration, measured: StepPoint | None, point: StepPoint) -> float:
    if measured is not None:
        return measured.seconds
    drafted = point.batch * point.length
    return calibration.cost.draft_s(point.batch, point.kv_tokens, drafted=drafted, longest=point.length)


def _place(point: StepPoint) -> tuple[int, int, int]:
    return point.batch, point.sequence_tokens, point.length
