"""Drafts of a batch, in compressed rows."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sestina.core.units import TokenArray

HandleArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Tokens that may follow one request."""

    token_ids: TokenArray
    parents: npt.NDArray[np.int32]
    """Of each token, the entry it follows; -1 follows the request's last token."""
    probs: npt.NDArray[np.float32]
    """Estimate that a token is accepted, its parents included."""
    score: float
    """The sum of `probs`: tokens expected to be accepted."""
    match_len: int
    """Tokens of the suffix whose followers these are; of a tree, of the longest one that had any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBuffers:
    """Where a batch of drafts is written; row i is entries bounds[i] to bounds[i + 1] of the first three."""

    token_ids: TokenArray
    parents: npt.NDArray[np.int32]
    probs: npt.NDArray[np.float32]
    bounds: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    match_lens: npt.NDArray[np.int32]

    @classmethod
    def for_batch(cls, num_requests: int, num_tokens: int) -> "DraftBuffers":
        """Return room for drafts of `num_requests` requests, `num_tokens` in all."""
        return cls(
            token_ids=np.empty(num_tokens, np.int32),
            parents=np.empty(num_tokens, np.int32),
            probs=np.empty(num_tokens, np.float32),
            bounds=np.empty(num_requests + 1, np.int64),
            scores=np.empty(num_requests, np.float32),
            match_lens=np.empty(num_requests, np.int32),
        )

    def draft(self, row: int) -> Draft:
        """Return one row, as views."""
        entries = slice(self.bounds[row], self.bounds[row + 1])
        return Draft(
            token_ids=self.token_ids[entries],
            parents=self.parents[entries],
            probs=self.probs[entries],
            score=float(self.scores[row]),
            match_len=int(self.match_lens[row]),
        )
