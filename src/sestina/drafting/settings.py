"""What an index is built for and asked."""

from dataclasses import dataclass

MEMORY_LIMIT_BYTES = 1 << 34

LONGEST_MATCH, SHORTEST_MATCH = 7, 3
"""Tokens of the end of a text that are looked for in histories (RhymeRL, R-B)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """What an index is built for; two that replay each other's logs must agree on the first two."""

    vocab_size: int
    depth: int = 24
    """Tokens of the longest string counted; a draft's context is one less."""
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    """Beyond it, groups without live requests are evicted, the least recently used first."""
    first_epoch: int = 0
    """Epoch of the first group. A server that starts again takes one above all of its earlier life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """How drafts are made."""

    top_k: int = 1
    """Paths of a draft. 1 drafts linearly; more make a tree, likeliest nodes first, shorter suffixes included."""
    min_token_prob: float = 0.1
    own_weight: int = 2
    """Occurrences more that a follower counts when the request itself took it last."""
    min_match: int = 1
    """Tokens of the shortest suffix whose followers are drafted."""
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What decoding a text with drafts takes."""

    num_tokens: int
    num_steps: int
    num_drafted: int
