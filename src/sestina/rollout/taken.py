"""What a step of the embedded engine was made of: what a cost model wants to know to say what it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sestina.rollout.step import Step

if TYPE_CHECKING:
    from sestina.rollout.batcher import Batcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A chunk that began to run with a step, or began again after a preemption."""

    text_tokens: int
    """It starts from."""
    cached_tokens: int
    """Of these, found in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One step."""

    sequences: int
    """That draw a token."""
    kv_tokens: int
    """Known to them together."""
    drafted_tokens: int
    longest_draft: int
    looked: bool
    """Whether drafts were looked for, found or not."""
    joined: Sequence[Joined]


OnStep: TypeAlias = Callable[[Taken], None]
"""Is told of every step before it is taken."""


def taken_of(step: Step, batcher: "Batcher") -> Taken:
    """Return what a step is made of that has been planned, and not yet taken."""
    drafts = step.drafts
    return Taken(
        sequences=len(step.requests),
        kv_tokens=int(batcher.slots.length[step.requests].sum()),
        drafted_tokens=0 if drafts is None else int(drafts.counts.sum()),
        longest_draft=0 if drafts is None else int(drafts.depths().max()),
        looked=batcher.looked,
        joined=batcher.joined,
    )
