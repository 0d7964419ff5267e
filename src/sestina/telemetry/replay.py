"""A journal's proof: a fresh planner told the same gives the same commands."""

from dataclasses import dataclass

from sestina.core.machine import Machine
from sestina.policies.events import Command, Event
from sestina.telemetry.journal import Entry, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first answered otherwise."""

    entry: Entry
    """What was recorded."""
    answer: tuple[Command, ...]
    """What the replay answered instead."""


def replay(segment: Segment, planner: Machine[Event, Command]) -> Difference | None:
    """Tell a fresh planner what the recorded one was told; return where it first answers otherwise, None if nowhere.

    Mutates the planner.
    """
    for entry in segment.entries:
        answer = tuple(planner.handle(entry.event, entry.now))
        if answer != entry.commands:
            return Difference(entry=entry, answer=answer)
    return None
