"""How fast a run's instances went, fitted to its own chunks: nothing is measured that the run has not left."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sestina.analysis.curves import running
from sestina.core.units import Seconds
from sestina.policies.drafting.acceptance import FloatArray
from sestina.telemetry.traces import ChunkRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What an engine step takes, and how much of a context is prefilled."""

    step_s: Seconds
    """Of every step, however many sequences it has."""
    sequence_s: Seconds
    """More for each sequence in it."""
    prefill_s: Seconds
    """Of a token prefilled, during which the others stand still."""
    first_share: float
    resumed_share: float
    """Of a context that an instance prefilled, in a first chunk and in a later one; the rest it found."""
    tokens_per_step: float
    """Of a sequence: more than 1 with drafts."""
    message_s: Seconds
    """From the last token of a chunk to the controller's knowing it; taken to be the same the other way."""

    def step_of(self, num_sequences: int) -> Seconds:
        """Return what a step of so many takes."""
        return self.step_s + self.sequence_s * num_sequences


def pace_of(chunks: Sequence[ChunkRow]) -> Pace:
    """Fit the pace to chunks, by least squares over what each took, no coefficient below zero."""
    spans = [row for row in chunks if row.finished_s > row.started_s and row.tokens]
    by_instance: dict[int, list[ChunkRow]] = defaultdict(list)
    for row in spans:
        by_instance[row.instance].append(row)
    spans = [row for rows in by_instance.values() for row in rows]
    terms = np.concatenate([_terms(rows) for rows in by_instance.values()])
    took = np.array([row.finished_s - row.started_s for row in spans])
    step_s, sequence_s, prefill_s = _least_squares(terms, took)
    steps = sum(row.tokens - row.accepted_tokens for row in spans)
    return Pace(
        step_s=step_s,
        sequence_s=sequence_s,
        prefill_s=prefill_s,
        first_share=_share(row for row in spans if not row.chunk),
        resumed_share=_share(row for row in spans if row.chunk),
        tokens_per_step=sum(row.tokens for row in spans) / steps,
        message_s=float(np.median([row.received_s - row.finished_s for row in spans])),
    )


def _terms(rows: Sequence[ChunkRow]) -> FloatArray:
    """[chunks, 3] steps of each chunk, the sequences in them, and the tokens prefilled meanwhile on their instance."""
    starts, ends = (np.array([getattr(row, name) for row in rows]) for name in ("started_s", "finished_s"))
    steps = np.array([row.tokens - row.accepted_tokens for row in rows], float)
    at, counts = running(rows, float(starts.min()))
    sequence_s = np.concatenate([[0.0], np.cumsum(np.diff(at) * counts[:-1])])  # the integral of the running ones
    together_s = np.interp(ends - starts.min(), at, sequence_s) - np.interp(starts - starts.min(), at, sequence_s)
    order = np.argsort(starts, kind="stable")
    prefilled = np.concatenate([[0.0], np.cumsum([rows[i].prefilled_tokens for i in order])])
    among = [np.searchsorted(starts[order], instants, side="left") for instants in (starts, ends)]
    return np.stack([steps, steps * together_s / (ends - starts), prefilled[among[1]] - prefilled[among[0]]], axis=1)


def _share(chunks: Iterable[ChunkRow]) -> float:
    """Return prefilled over prefilled and found; 1 when there is nothing to go by."""
    rows = list(chunks)
    prefilled, found = sum(r.prefilled_tokens for r in rows), sum(r.cached_tokens + r.kv_loaded_tokens for r in rows)
    return prefilled / (prefilled + found) if prefilled + found else 1.0


def _least_squares(terms: np.ndarray, took: np.ndarray) -> tuple[float, float, float]:
    """Leave out what would be negative, worst first; relative errors count, so that short chunks do too."""
    kept = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(terms[:, kept] / took[:, None], np.ones(len(took)), rcond=None)[0]
        if len(kept) == 1 or found.min() >= 0:
            break
        del kept[int(found.argmin())]
    values = dict(zip(kept, found.tolist(), strict=True))
    step_s, sequence_s, prefill_s = (max(0.0, values.get(index, 0.0)) for index in range(3))
    return step_s, sequence_s, prefill_s
