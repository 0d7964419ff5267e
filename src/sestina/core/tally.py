"""What a rollout rank's drafter has counted since it was last asked: crosses from the rank to the controller."""

from dataclasses import dataclass

from sestina.core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTally:
    """Of the drafts of one source; training responses only."""

    drafted_tokens: int
    accepted_tokens: int
    tried: tuple[int, ...]
    """[longest draft]: how often the token at each place of a draft was put to the test, those before it accepted"""
    accepted: tuple[int, ...]
    """[longest draft]: how often it was accepted"""
    drafted_by_siblings: tuple[int, ...]
    accepted_by_siblings: tuple[int, ...]
    """[classes]: tokens by how many responses of the group had finished on that rank: 0, 1, 2 to 3, 4 to 7, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTally:
    """Of one rank."""

    sources: dict[str, SourceTally]
    steps: dict[str, int]
    """Steps by the reason for drafting or not drafting in them."""
    draft_s: Seconds
    """Spent on deciding and drafting."""
    step_s: Seconds
    """Of all steps."""
    histories: int
    """Prompts whose history was taken in."""
    histories_dropped: int
    """Prompts whose history was not: damaged, or no room in the index."""
