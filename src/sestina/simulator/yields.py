"""What drafts yielded the responses of a recorded run, chunk by chunk.

Long responses repeat themselves, so that their drafts yield more, and the beginning of any response has nothing to
draft from.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from sestina.config.resolved import read_resolved
from sestina.controller.run_dir import CONFIG
from sestina.core.errors import DataError
from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.rollout.config import TorchEngineConfig
from sestina.telemetry.traces import read_chunks

FloatArray: TypeAlias = npt.NDArray[np.float64]

MOST_CLASSES = 16
"""Simulated steps are advanced class by class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yields:
    """By class of chunks; the first is of all together, for responses that were not recorded."""

    tokens_per_step: tuple[float, ...]
    drafted_per_step: tuple[float, ...]
    pieces: Mapping[RequestId, tuple[list[int], list[int]]]
    """The tokens that a response's recorded chunks went up to, and their classes."""

    def classes_of(self, request: RequestId, begin: int, end: int) -> list[tuple[int, int]]:
        """Return the classes of a response's tokens from `begin` to `end`, each with the token that it goes up to."""
        known = self.pieces.get(request)
        if known is None:
            return [(end, 0)]
        ends, numbers = known
        found: list[tuple[int, int]] = []
        for place in range(bisect_right(ends, begin), len(ends)):
            if found and found[-1][1] == numbers[place]:
                found.pop()
            found.append((min(ends[place], end), numbers[place]))
            if ends[place] >= end:
                break
        return found or [(end, 0)]


def read_yields(run_dir: Path, *, draft_tokens: int) -> Yields:
    """Return what a run's chunks came to with drafts of `draft_tokens`, classes having about equally many steps.

    Raises DataError where there are no chunks, or nothing was drafted, or more than that; and for a group of two steps.
    """
    chunks = read_chunks(run_dir).filter(pc.field("group") < EVAL_GROUPS)
    if not len(chunks):
        raise DataError(f"{run_dir}: has no chunks in traces/; sim.acceptance.recording is the directory of a run")
    chunks = chunks.sort_by([(name, "ascending") for name in ("group", "sample", "step", "chunk")])
    group, sample, step = (chunks[name].to_numpy() for name in ("group", "sample", "step"))
    names = ("tokens", "drafted_tokens", "accepted_tokens")
    tokens, drafted, accepted = (chunks[name].to_numpy().astype(np.float64) for name in names)
    steps = tokens - accepted
    first = np.flatnonzero((np.diff(group, prepend=-1) != 0) | (np.diff(sample, prepend=-1) != 0))
    _check(run_dir, draft_tokens, drafted, steps)
    _check_steps(run_dir, group, step)
    bounds = _bounds(tokens / np.maximum(steps, 1), steps)
    numbers = np.searchsorted(bounds, tokens / np.maximum(steps, 1), side="right")
    members = [np.ones(len(tokens), bool), *(numbers == number for number in range(len(bounds) + 1))]
    parts = zip(np.split(tokens, first[1:]), np.split(numbers + 1, first[1:]), strict=True)
    return Yields(
        tokens_per_step=tuple(float(tokens[each].sum() / max(steps[each].sum(), 1)) for each in members),
        drafted_per_step=tuple(float(drafted[each].sum() / max(steps[each].sum(), 1)) for each in members),
        pieces={
            RequestId(int(group[row]), int(sample[row])): (np.cumsum(part).astype(int).tolist(), classes.tolist())
            for row, (part, classes) in zip(first, parts, strict=True)
        },
    )


def check_whole(run_dir: Path, *, draft_tokens: int) -> None:
    """Raise DataError where a run's steps may not have had rows for all drafts, which were cut then.

    Whoever cuts them by other responses wants them whole. A step that chunks join gives half of its rows to drafts.
    """
    engine = read_resolved(run_dir / CONFIG).rollout.engine
    if not isinstance(engine, TorchEngineConfig):
        return
    wanted = engine.max_running * (1 + 2 * draft_tokens)
    if engine.max_step_tokens < wanted:
        raise DataError(
            f"{run_dir}: its steps had no rows for all drafts; sim.acceptance.recording is a run with "
            f"rollout.engine.max_step_tokens of at least {wanted}, for drafts of {draft_tokens} of "
            f"{engine.max_running} responses"
        )


def _check(run_dir: Path, draft_tokens: int, drafted: FloatArray, steps: FloatArray) -> None:
    if not drafted.any():
        raise DataError(f"{run_dir}: nothing was drafted in this run; sim.acceptance.recording is one with drafts")
    if (drafted > draft_tokens * steps).any():
        raise DataError(
            f"{run_dir}: drafts were longer than sim.acceptance.draft_tokens {draft_tokens}; it is what the recorded "
            "run had as draft.max_tokens"
        )


def _check_steps(run_dir: Path, group: npt.NDArray[np.int64], step: npt.NDArray[np.int64]) -> None:
    """Refuse groups of two steps: what drafts yielded one of them is not what they yielded the other."""
    wrong = np.flatnonzero((np.diff(group) == 0) & (np.diff(step) != 0))
    if len(wrong):
        row = wrong[0]
        raise DataError(
            f"{run_dir}: group {group[row]} is of steps {step[row]} and {step[row + 1]}; sim.acceptance.recording "
            "takes groups whose numbers differ"
        )


def _bounds(rates: FloatArray, steps: FloatArray) -> FloatArray:
    """Return rates between classes of about equally many steps, each once and without the lowest of all."""
    order = np.argsort(rates, kind="stable")
    reached = np.searchsorted(np.cumsum(steps[order]), steps.sum() * np.arange(1, MOST_CLASSES) / MOST_CLASSES)
    bounds = np.unique(rates[order][np.minimum(reached, len(rates) - 1)])
    return bounds[bounds > rates.min()]
