"""How far the requests of an instance are, without counting each.

Requests of one class of acceptance get the same number of tokens in every step. Each class counts what one of its
requests has got since the start, and a heap holds the counts at which chunks end, or change their class.
"""

from heapq import heappop, heappush

from sestina.simulator.acceptance import Drafting
from sestina.simulator.chunk import Chunk

_LEAST = 1e-9
"""Tokens that rounding may leave of a chunk."""


class Progress:
    """Of all that an instance runs."""

    def __init__(self, drafting: Drafting) -> None:
        classes = len(drafting.rates)
        self.counts = [0] * classes
        """Requests of each class."""
        self._rates = drafting.rates
        self._lengths = drafting.lengths
        self._found = drafting.drafted or (1.0,) * classes
        self._got = [0.0] * classes
        """Tokens that a request of each class has got since the start."""
        self._ends: list[list[tuple[float, int, Chunk]]] = [[] for _ in range(classes)]
        """Heaps: count, ticket, chunk. An entry whose ticket is not its chunk's is void."""
        self._steps = self._drafts = 0
        """Steps taken, and draft tokens of a request that was in all of them."""
        self._num_tickets = 0

    def growth(self, length: int) -> float:
        """Return the tokens of a step, all requests together; `length` is an index into `Drafting.lengths`."""
        return sum(count * rates[length] for count, rates in zip(self.counts, self._rates, strict=True))

    def steps_to_end(self, length: int) -> int:
        """Return the steps until a chunk ends or changes its class; there must be one."""
        return min(
            max(1, -int(-(heap[0][0] - got - _LEAST) // rates[length]))
            for heap, got, rates in zip(self._ends, self._got, self._rates, strict=True)
            if self._cleared(heap)
        )

    def advance(self, steps: int, length: int) -> None:
        """So many steps have passed."""
        for number, rates in enumerate(self._rates):
            self._got[number] += steps * rates[length]
        self._steps += steps
        self._drafts += steps * self._lengths[length]

    def ended(self) -> list[Chunk]:
        """Return the chunks that have got all their tokens, in the order of their tickets; they have yet to leave.

        Those that have come to their next class are of it from now on.
        """
        ended: list[Chunk] = []
        turned: list[Chunk] = []
        for heap, got in zip(self._ends, self._got, strict=True):
            while self._cleared(heap) and heap[0][0] <= got + _LEAST:
                chunk = heappop(heap)[2]
                produced = chunk.produced + got - chunk.joined_at
                (ended if produced >= chunk.tokens - _LEAST else turned).append(chunk)
        for chunk in turned:
            self.leave(chunk)
            self.join(chunk)
        return sorted(ended, key=lambda chunk: chunk.ticket)

    def join(self, chunk: Chunk) -> None:
        """A chunk runs from now on, in the class that it states."""
        end, number = chunk.stage()
        chunk.running_class = number
        self._num_tickets += 1
        chunk.ticket = self._num_tickets
        chunk.joined_at, chunk.joined_steps, chunk.joined_drafts = self._got[number], self._steps, self._drafts
        self.counts[number] += 1
        heappush(self._ends[number], (chunk.joined_at + end - chunk.produced, chunk.ticket, chunk))

    def leave(self, chunk: Chunk) -> None:
        """A chunk that runs does not from now on; brings its counts up to date."""
        number = chunk.running_class
        chunk.produced += self._got[number] - chunk.joined_at
        chunk.steps += self._steps - chunk.joined_steps
        chunk.drafted_tokens += round((self._drafts - chunk.joined_drafts) * self._found[number])
        chunk.ticket = 0
        self.counts[number] -= 1

    def own_tokens(self, chunk: Chunk) -> float:
        """Return the tokens of the response that a chunk has by now."""
        if not chunk.ticket:
            return chunk.own_tokens
        return chunk.own_tokens + self._got[chunk.running_class] - chunk.joined_at

    def reclass(self, chunk: Chunk, number: int) -> None:
        """A chunk is of another class; one that waits is from its admission on."""
        chunk.classes = [(chunk.tokens, number)]
        if chunk.ticket and chunk.running_class != number:
            self.leave(chunk)
            self.join(chunk)

    def _cleared(self, heap: list[tuple[float, int, Chunk]]) -> bool:
        """Throw void entries away; returns whether any other is left."""
        while heap and heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return bool(heap)
