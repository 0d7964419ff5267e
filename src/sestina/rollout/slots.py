"""The state of running requests as arrays, one row (slot) per request, so that a decode step costs no Python loop.

Symbols: S slots, C longest context in tokens.
"""

import numpy as np

from sestina.core.records import NO_TURN, ChunkRequest
from sestina.core.units import LogprobArray, TokenArray
from sestina.rollout.drafts import Drafts, IntArray, places
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
        self.stops = np.zeros(num_slots, np.int32)
        """[S] index in the sequence of an end of sequence that is given (forced.py); 0: it is drawn."""
        self.turns = np.full(num_slots, NO_TURN, np.int32)
        """[S] token that ends the request's turn."""
        self.keys = np.zeros(num_slots, np.uint64)
        """[S] noise key of the request (core.noise)."""
        self.groups = np.zeros(num_slots, np.int64)
        self.samples = np.zeros(num_slots, np.int64)
        """[S] the request's id."""
        self.prompts = np.zeros(num_slots, np.int32)
        """[S] tokens of the prompt."""
        self.drafted = np.zeros(num_slots, np.int32)
        self.accepted = np.zeros(num_slots, np.int32)
        """[S] drafted tokens of the chunk, and those of them that were drawn."""
        self.temperature = np.zeros(num_slots, np.float32)
        """[S] sampling temperature."""
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Rows without a request."""
        return len(self._free)

    def take(self, request: ChunkRequest, known: TokenArray, *, limit: int, key: int) -> int:
        """Fill a free row with a request whose known tokens are `known`; return its index."""
        slot = self._free.pop()
        self.tokens[slot, : len(known)] = known
        self.length[slot] = len(known)
        self.computed[slot] = 0
        self.limit[slot] = limit
        self.stops[slot] = len(request.prompt) + request.stop_at - 1 if request.stop_at else 0
        self.turns[slot] = request.turn_token
        self.keys[slot] = key
        self.groups[slot], self.samples[slot] = request.id.group, request.id.sample
        self.prompts[slot] = len(request.prompt)
        self.drafted[slot] = self.accepted[slot] = 0
        self.temperature[slot] = request.temperature
        return slot

    def last(self, slots: IntArray) -> TokenArray:
        """Return the last known token of each of these rows."""
        return self.tokens[slots, self.length[slots] - 1]

    def append(self, slots: IntArray, tokens: TokenArray, logprobs: LogprobArray) -> None:
        """Add one drawn token to each of these rows, whose known tokens are then all computed but that one."""
        length = self.length[slots]
        self.tokens[slots, length] = tokens
        self.logprobs[slots, length] = logprobs
        self.length[slots] = length + 1
        self.computed[slots] = length

    def extend(self, slots: IntArray, tokens: TokenArray, logprobs: LogprobArray, counts: IntArray) -> None:
        """As `append`, with `counts` tokens for each row, those of all rows one after the other."""
        rows = np.repeat(slots, counts)
        at = self.length[rows] + places(counts)
        self.tokens[rows, at] = tokens
        self.logprobs[rows, at] = logprobs
        self.length[slots] += counts
        self.computed[slots] = self.length[slots] - 1

    def put_drafts(self, slots: IntArray, drafts: Drafts) -> None:
        """Write drafted tokens behind the known ones of these rows, where the next draws overwrite them."""
        rows = np.repeat(slots, drafts.counts)
        drafted = np.arange(drafts.tokens.shape[1]) < drafts.counts[:, None]
        self.tokens[rows, self.length[rows] + places(drafts.counts)] = drafts.tokens[drafted]

    def cache_slots(self, slots: IntArray, cells: IntArray) -> IntArray:
        """Return where the keys and values of these cells of these rows are: page * PAGE_TOKENS + offset."""
        return self.block_tables[slots, cells // PAGE_TOKENS] * PAGE_TOKENS + cells % PAGE_TOKENS

    def give_back(self, slot: int) -> None:
        """Free a row; its arrays stay readable until it is taken again."""
        self._free.append(slot)

    def page_tokens(self, slot: int, page: int) -> TokenArray:
        """Return a copy of the tokens on one page of a row."""
        return self.tokens[slot, page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS].copy()
