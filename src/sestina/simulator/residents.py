"""Whose keys and values an instance holds, and what of them is there for whoever comes.

A group's prompt is held once, in whole pages. So is what its responses begin with alike, where a recording says what
that is (commons.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from sestina.core.ids import GroupId, RequestId
from sestina.simulator.chunk import Chunk
from sestina.simulator.commons import Commons
from sestina.simulator.prefixes import IdlePrefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidLimits:
    """What an instance can hold."""

    kv_capacity_tokens: int
    max_running: int
    page_tokens: int = 1
    """Of the pages in which keys and values are held; 1: as if there were none."""

    @property
    def unused_tokens(self) -> float:
        """Return what a request leaves unused of its last page, in the mean."""
        return (self.page_tokens - 1) / 2

    @property
    def room_tokens(self) -> float:
        """Return what requests may come to hold as they are counted: the last one to go on may fill its last page."""
        return self.kv_capacity_tokens + self.unused_tokens

    def whole(self, tokens: int) -> int:
        """Return how many of a text's first tokens are in whole pages, which others may hold as well."""
        return tokens // self.page_tokens * self.page_tokens


class Residents:
    """The requests that run on an instance, and what those have left that ran."""

    def __init__(self, limits: FluidLimits, own_tokens: Callable[[Chunk], float]) -> None:
        """`own_tokens`: what a request that runs has of its own by now."""
        self._limits, self._own_tokens = limits, own_tokens
        self._apart_tokens = 0.0
        """Keys and values of those that run, each by itself; a group's prompt counts once."""
        self._prompt_tokens = 0
        """Of whole pages, that groups hold once instead of once for each request."""
        self._commons = Commons(own_tokens, limits.whole)
        self._members: dict[GroupId, dict[int, Chunk]] = {}
        """Of each group, by their numbers."""
        self._idle = IdlePrefixes()

    @property
    def held_tokens(self) -> float:
        """Return the keys and values of those that run; what several have in common counts once."""
        return self._apart_tokens - self._commons.tokens

    @property
    def room_tokens(self) -> float:
        """Return what those that run may yet grow by."""
        return self._limits.room_tokens - self.held_tokens

    @property
    def shared_tokens(self) -> int:
        """Return by how much less they hold than each would by itself."""
        return self._prompt_tokens + self._commons.tokens

    def wanted(self, chunk: Chunk) -> float:
        """Return what a request would hold that no other one does that runs."""
        return self._apart(chunk) - self._commons.with_any(chunk)

    def enter(self, chunk: Chunk) -> tuple[int, int]:
        """Have a request hold its context; returns how much was there of its prompt, and of its own tokens."""
        group = chunk.request.group
        prompt = self._idle.take(group)
        if group in self._members:
            prompt = chunk.prompt_tokens
            self._prompt_tokens += self._limits.whole(prompt)
        own = min(int(chunk.own_tokens), max(self._idle.take(chunk.request), self._of_siblings(chunk)))
        self._apart_tokens += self._apart(chunk)
        self._members.setdefault(group, {})[chunk.request.sample] = chunk
        self._commons.enter(chunk)
        self.shrink()
        return prompt, own

    def leave(self, chunk: Chunk) -> None:
        """Have a request hold nothing; its tokens so far are `own_tokens`, and its group's prompt stays for others."""
        group = chunk.request.group
        self._commons.leave(chunk)
        members = self._members[group]
        del members[chunk.request.sample]
        if members:
            self._prompt_tokens -= self._limits.whole(chunk.prompt_tokens)
        else:
            del self._members[group]
            if not chunk.kept_kv:
                self._idle.release(group, chunk.prompt_tokens)
        self._apart_tokens -= self._apart(chunk)
        if not self._members:
            self._apart_tokens = 0.0  # what rounding has left

    def release(self, chunk: Chunk, *, complete: bool = False) -> None:
        """Leave the own tokens of a request that has left; of one that is complete what siblings begin with as well."""
        tokens = int(chunk.own_tokens)
        if complete:
            tokens = min(tokens, 0 if chunk.siblings is None else chunk.siblings.most(chunk.request.sample))
        if tokens and not chunk.kept_kv:
            self._idle.release(chunk.request, tokens, min(tokens, self._of_siblings(chunk)))

    def grow(self, tokens: float) -> None:
        """Those that run have got so many tokens more."""
        self._apart_tokens += tokens
        self._commons.refresh()
        self.shrink()

    def shrink(self) -> None:
        """Give up what nobody holds for what those that run do."""
        self._idle.shrink(self.room_tokens)

    def forget(self) -> None:
        """Weights have changed: nothing that nobody holds serves anybody."""
        self._idle.forget()

    def _apart(self, chunk: Chunk) -> float:
        """Return what a request holds if nobody begins as it does."""
        whole = self._limits.whole(chunk.prompt_tokens)
        own = chunk.prompt_tokens - whole + chunk.own_tokens + self._limits.unused_tokens
        return own if chunk.request.group in self._members else own + whole

    def _of_siblings(self, chunk: Chunk) -> int:
        """Return with how many tokens a request begins as siblings do that have them here."""
        if chunk.siblings is None:
            return 0
        group, sample = chunk.request.group, chunk.request.sample
        members = self._members.get(group, {}).items()
        there = {number: int(self._own_tokens(other)) for number, other in members if not other.kept_kv}
        row = chunk.siblings.common[sample]
        for number in range(len(row)):
            there.setdefault(number, self._idle.tokens_of(RequestId(group, number)))
        return max(min(tokens, row[number]) for number, tokens in there.items())
