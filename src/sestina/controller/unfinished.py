"""What a batch had come to when the run was asked to stop in the middle of it: kept on the disk, and taken up again.

A token depends on weights, text, identity and seed alone (docs/decisions/0003), so that responses which are continued
are those of a run that nothing has interrupted.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sestina.controller.observation import Observation
from sestina.controller.sample import Sample
from sestina.core.errors import RunDirError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkResult
from sestina.core.units import Seconds, Version
from sestina.policies.events import Begun
from sestina.rewards.outcome import Outcome
from sestina.telemetry.aside import written_aside
from sestina.telemetry.traces import ChunkRow
from sestina.transport.codec import pack, unpack

_INSTANTS = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in which run a batch belongs: tokens of any other place are not its own."""

    step: int
    version: Version
    fingerprint: str
    """Of the configuration's pinned keys."""
    digest: str
    """Of the prompt set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSample:
    """A response that was begun, with its tokens, their logprobs and the weights they come from."""

    id: RequestId
    offered_s: Seconds
    parts: tuple[ChunkResult, ...]
    chunks: tuple[ChunkRow, ...]
    outcome: Outcome | None
    rewarded_s: Seconds
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """The file."""

    place: Place
    kept_s: Seconds
    """When it was written, on the clock of all its instants."""
    samples: tuple[KeptSample, ...]


def write_unfinished(path: Path, place: Place, samples: Iterable[Sample], now: Seconds) -> int:
    """Keep every response that has a token; returns how many tokens that are."""
    begun = [sample for sample in samples if sample.num_tokens]
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(pack(Unfinished(place=place, kept_s=now, samples=tuple(map(keep, begun)))))
        file.flush()
        os.fsync(file.fileno())
    return sum(sample.num_tokens for sample in begun)


def read_unfinished(path: Path, place: Place, now: Seconds) -> dict[RequestId, KeptSample]:
    """Return what is kept for this place, its instants as if it had been interrupted just `now`; else nothing.

    Raises RunDirError when the file is malformed.
    """
    if not path.exists():
        return {}
    try:
        kept = unpack(path.read_bytes(), Unfinished)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDirError(f"{path}: not what a stopped run leaves: {error}; without it the step begins anew") from None
    if kept.place != place:
        return {}
    return {sample.id: moved(sample, now - kept.kept_s) for sample in kept.samples}


def take_up(samples: Mapping[RequestId, Sample], kept: Mapping[RequestId, KeptSample]) -> tuple[Begun, ...]:
    """Have samples go on from what was kept of them; returns what the planner is to know."""
    for id, before in kept.items():
        sample = samples[id]
        sample.offered_s = before.offered_s
        sample.parts, sample.chunks = list(before.parts), list(before.chunks)
        sample.observations = list(before.observations)
        sample.outcome, sample.rewarded_s = before.outcome, before.rewarded_s
        sample.restored_tokens = sample.num_drawn
    taken = [samples[id] for id in kept]
    return tuple(
        Begun(
            request=sample.id,
            generated_tokens=sample.num_tokens,
            done=sample.complete,
            rewarded=sample.outcome is not None,
            paused=sample.paused,
        )
        for sample in taken
    )


def keep(sample: Sample) -> KeptSample:
    """Return what is kept of a response."""
    return KeptSample(
        id=sample.id,
        offered_s=sample.offered_s,
        parts=tuple(sample.parts),
        chunks=tuple(sample.chunks),
        outcome=sample.outcome,
        rewarded_s=sample.rewarded_s,
        observations=tuple(sample.observations),
    )


def moved(sample: KeptSample, by_s: Seconds) -> KeptSample:
    """Return it as this start has it: all its instants so much later, its chunks another start's."""

    def move(row: ChunkRow) -> ChunkRow:
        return dataclasses.replace(row, restored=True, **{name: getattr(row, name) + by_s for name in _INSTANTS})

    return dataclasses.replace(
        sample,
        offered_s=sample.offered_s + by_s,
        chunks=tuple(move(row) for row in sample.chunks),
        rewarded_s=sample.rewarded_s + by_s,
    )
