"""The state of running requests as arrays, one row (slot) per request, so that a decode step costs no Python loop.

Symbols: S slots, C longest context in tokens.
"""

import numpy as np

from sestina.core.units import TokenArray
from sestina.rollout.pages import PAGE_TOKENS, pages_for


class SlotTable:
    """Rows of the running batch; the batcher assigns rows, kernels read `block_tables` in place."""

    def __init__(self, *, num_slots: int, max_context_tokens: int) -> None:
        shape = (num_slots, max_context_tokens)
        self.tokens = np.zeros(shape, np.int32)
        """[S, C] known tokens: prompt, earlier chunks, this chunk."""
        self.logprobs = np.zeros(shape, np.float32)
        """[S, C] of the tokens this chunk produced."""
        self.block_tables = np.zeros((num_slots, pages_for(max_context_tokens)), np.int32)
        """[S, pages of C] pages that hold the KV, in token order."""
        self.length = np.zeros(num_slots, np.int32)
        """[S] known tokens."""
        self.computed = np.zeros(num_slots, np.int32)
        """[S] tokens whose KV is in the cache; one less than `length` while decoding."""
        self.limit = np.zeros(num_slots, np.int32)
        """[S] `length` at which the chunk ends."""
        self.keys = np.zeros(num_slots, np.uint64)
        """[S] noise key of the request (core.noise)."""
        self.temperature = np.zeros(num_slots, np.float32)
        """[S] sampling temperature."""
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Rows without a request."""
        return len(self._free)

    def take(self, known: TokenArray, *, limit: int, key: int, temperature: float) -> int:
        """Fill a free row with a request whose known tokens are `known`; return its index."""
        slot = self._free.pop()
        self.tokens[slot, : len(known)] = known
        self.length[slot] = len(known)
        self.computed[slot] = 0
        self.limit[slot] = limit
        self.keys[slot] = key
        self.temperature[slot] = temperature
        return slot

    def give_back(self, slot: int) -> None:
        """Free a row; its arrays stay readable until it is taken again."""
        self._free.append(slot)

    def page_tokens(self, slot: int, page: int) -> TokenArray:
        """Return a copy of the tokens on one page of a row."""
        return self.tokens[slot, page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS].copy()
