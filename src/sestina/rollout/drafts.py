"""Drafts of several requests, each a chain of tokens or a tree of alternatives.

Symbols: N requests, K longest draft. Row 0 of a request is its last known token, row i + 1 its drafted token i. A row's
*cell* is the index in its sequence where its token, keys and values are kept: rows lie one after the other. Its
*position* is that of the token in the text it would belong to; in a chain both are the same.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sestina.core.units import TokenArray

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Branches:
    """What rows of trees see behind their last known token, where that is not what lies there."""

    offsets: IntArray
    """[rows + 1] into `cells`"""
    cells: IntArray
    """[cells of all rows] those of a row's ancestors after the last known token, and its own."""

    def padded(self, rows: int) -> "Branches":
        """Return the branches of some more rows, which have none."""
        return Branches(np.pad(self.offsets, (0, rows), mode="edge"), self.cells)


@dataclass(frozen=True, slots=True)
class Drafts:
    """What may follow the last known token of N requests."""

    tokens: TokenArray
    """[N, K] one line per request, of which the first `counts` entries mean something."""
    counts: IntArray
    """[N] drafted tokens, from 0 to K."""
    parents: IntArray | None = None
    """[N, K] the drafted token that each one follows, always an earlier one; -1: the last known token. None: chains."""

    def at_most(self, limits: IntArray) -> "Drafts":
        """Return drafts cut to these lengths [N]."""
        counts = np.minimum(self.counts, limits)
        longest = max(counts, default=0)
        parents = None if self.parents is None else self.parents[:, :longest]
        return Drafts(self.tokens[:, :longest], counts, parents)

    def padded(self, requests: int) -> "Drafts":
        """Return drafts of some more requests, for which nothing is drafted."""
        more = ((0, requests), (0, 0))
        parents = None if self.parents is None else np.pad(self.parents, more)
        return Drafts(np.pad(self.tokens, more), np.pad(self.counts, (0, requests)), parents)

    def depths(self) -> IntArray:
        """Return [rows of all requests] how many tokens after the last known one each row comes."""
        if self.parents is None:
            return places(self.counts + 1)
        depths = np.zeros((len(self.counts), self.tokens.shape[1] + 1), np.int32)
        for i in range(self.tokens.shape[1]):
            depths[:, i + 1] = depths[np.arange(len(depths)), self.parents[:, i] + 1] + 1
        return depths[self._there()]

    def branches(self) -> Branches | None:
        """Return what each row sees, as rows of its request; None for chains, which see what lies before them."""
        if self.parents is None:
            return None
        rows = np.arange(self.tokens.shape[1] + 1, dtype=np.int32)
        line = [np.broadcast_to(rows, (len(self.counts), len(rows)))]  # a row, its parent, ...; 0 from the root on
        above = np.pad(np.where(self._there()[:, 1:], self.parents + 1, 0), ((0, 0), (1, 0)))
        while line[-1].any():
            line.append(np.take_along_axis(above, line[-1], axis=1))
        upward = np.stack(line[::-1], axis=2)[self._there()]
        seen = upward > 0
        return Branches(np.append(0, np.cumsum(seen.sum(axis=1))).astype(np.int32), upward[seen].astype(np.int32))

    def _there(self) -> BoolArray:
        return np.arange(self.tokens.shape[1] + 1) <= self.counts[:, None]


def places(counts: IntArray) -> IntArray:
    """Return 0, 1, ... for each count, one after the other."""
    return np.arange(counts.sum(), dtype=np.int32) - np.repeat(np.cumsum(counts, dtype=np.int32) - counts, counts)
