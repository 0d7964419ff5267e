"""Tokens that several requests of an instance hold together, since siblings begin alike.

In the order of their texts each request has at most as much in common with any as with its neighbours, so that what all
of a group hold is what each holds, less what it has in common with the one before it. That grows while both are still
in what they begin with; most are soon past it, and are looked at no more.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from sestina.core.ids import GroupId, RequestId
from sestina.simulator.chunk import Chunk


@dataclass(slots=True, kw_only=True)
class _Pair:
    """A request and the one before it in the order of their texts."""

    before: Chunk
    chunk: Chunk
    tokens: int = 0
    """Counted of it so far."""


class Commons:
    """Of the requests that run on an instance, where it is known what they begin with."""

    def __init__(self, own_tokens: Callable[[Chunk], float], whole: Callable[[int], int]) -> None:
        """`own_tokens`: those that a request has by now; `whole`: how many first tokens of a text are in pages."""
        self.tokens = 0
        """Held together: what all hold is less than what each does by so many."""
        self._own_tokens, self._whole = own_tokens, whole
        self._ordered: dict[GroupId, list[tuple[int, int, Chunk]]] = {}
        """Rank, number, request."""
        self._pairs: dict[RequestId, _Pair] = {}
        self._growing: dict[RequestId, _Pair] = {}

    def enter(self, chunk: Chunk) -> None:
        """A request runs."""
        if chunk.siblings is None:
            return
        ordered = self._ordered.setdefault(chunk.request.group, [])
        entry = chunk.siblings.ranks[chunk.request.sample], chunk.request.sample, chunk
        insort(ordered, entry, key=lambda each: each[:2])
        self._pair_up(ordered, ordered.index(entry), 2)

    def leave(self, chunk: Chunk) -> None:
        """A request runs no more."""
        if chunk.siblings is None:
            return
        ordered = self._ordered[chunk.request.group]
        place = next(index for index, (_, _, other) in enumerate(ordered) if other is chunk)
        self._part(chunk)
        del ordered[place]
        self._pair_up(ordered, place, 1)
        if not ordered:
            del self._ordered[chunk.request.group]

    def refresh(self) -> None:
        """Count what requests have got in common since."""
        for request, pair in list(self._growing.items()):
            self._count(pair)
            if pair.tokens == self._shared(pair.before, pair.chunk, float("inf")):
                del self._growing[request]

    def with_any(self, chunk: Chunk) -> int:
        """Return how many of a request's own tokens, which does not run, those hold that do."""
        others = self._ordered.get(chunk.request.group, ())
        own = chunk.own_tokens
        return max((self._shared(other, chunk, min(own, self._own_tokens(other))) for _, _, other in others), default=0)

    def _pair_up(self, ordered: list[tuple[int, int, Chunk]], first: int, count: int) -> None:
        for place in range(first, min(first + count, len(ordered))):
            chunk = ordered[place][2]
            self._part(chunk)
            if place:
                pair = _Pair(before=ordered[place - 1][2], chunk=chunk)
                self._pairs[chunk.request] = self._growing[chunk.request] = pair
                self._count(pair)

    def _part(self, chunk: Chunk) -> None:
        pair = self._pairs.pop(chunk.request, None)
        if pair is not None:
            self._growing.pop(chunk.request, None)
            self.tokens -= pair.tokens

    def _count(self, pair: _Pair) -> None:
        have = min(self._own_tokens(pair.before), self._own_tokens(pair.chunk))
        tokens = self._shared(pair.before, pair.chunk, have)
        self.tokens += tokens - pair.tokens
        pair.tokens = tokens

    def _shared(self, one: Chunk, other: Chunk, have: float) -> int:
        """Return how many own tokens, in whole pages, two have in common of the first `have`."""
        assert one.siblings is not None
        common = one.siblings.common(one.request.sample, other.request.sample)
        prompt = one.prompt_tokens
        return self._whole(prompt + int(min(common, have))) - self._whole(prompt)
