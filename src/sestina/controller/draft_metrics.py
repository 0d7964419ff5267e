"""The `spec/` namespace, as far as drafters count it: by source, by place in the draft, by finished siblings."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sestina.core.tally import DraftTally, SourceTally

PLACES = (1, 2, 4, 8, 16, 32, 64)
"""Places of a draft, from 1, whose acceptance is a metric."""

SIBLINGS = ("0", "1", "2_3", "4_7", "8_15", "16")
"""Names of the classes of SourceTally."""


def tally_metrics(tallies: Sequence[DraftTally]) -> dict[str, float]:
    """Return the metrics of all ranks together; none when nothing was counted.

    A share of nothing is left out.
    """
    if not any(tally.steps for tally in tallies):
        return {}
    steps: Counter[str] = sum((Counter(tally.steps) for tally in tallies), Counter())
    metrics = {f"spec/steps/{reason.replace('-', '_')}": float(count) for reason, count in sorted(steps.items())}
    step_s = sum(tally.step_s for tally in tallies)
    metrics |= _share("spec/draft_time_share", sum(tally.draft_s for tally in tallies), step_s)
    for source in sorted({name for tally in tallies for name in tally.sources}):
        metrics |= _of_source(source, [tally.sources[source] for tally in tallies if source in tally.sources])
    if any("history" in tally.sources for tally in tallies):
        metrics["spec/history/taken"] = float(sum(tally.histories for tally in tallies))
        metrics["spec/history/refused"] = float(sum(tally.histories_dropped for tally in tallies))
    return metrics


def _of_source(source: str, tallies: Sequence[SourceTally]) -> dict[str, float]:
    at = f"spec/{source}"
    drafted, accepted = sum(t.drafted_tokens for t in tallies), sum(t.accepted_tokens for t in tallies)
    metrics = {
        f"{at}/drafted_tokens": float(drafted),
        f"{at}/accepted_tokens": float(accepted),
        f"{at}/wasted_tokens": float(drafted - accepted),
    }
    tried, taken = _sums(t.tried for t in tallies), _sums(t.accepted for t in tallies)
    for place in (place for place in PLACES if place <= len(tried)):
        metrics |= _share(f"{at}/acceptance_at_{place}", taken[place - 1], tried[place - 1])
    offered = _sums(t.drafted_by_siblings for t in tallies)
    used = _sums(t.accepted_by_siblings for t in tallies)
    for name, part, whole in zip(SIBLINGS, used, offered, strict=True):
        metrics |= _share(f"{at}/acceptance_siblings_{name}", part, whole)
    return metrics


def _sums(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _share(name: str, part: float, whole: float) -> dict[str, float]:
    return {name: part / whole} if whole else {}
