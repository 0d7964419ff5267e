"""Tokens that several requests of an instance hold together, since siblings begin alike.

Taken one after the other, each request of a group holds what it has, less the most that it has in common with one
before it. That grows while both are still in what they begin with; most groups are soon past it, and are looked at no
more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sestina.core.ids import GroupId
from sestina.simulator.chunk import Chunk
from sestina.simulator.siblings import Siblings


@dataclass(slots=True, kw_only=True)
class _Group:
    siblings: Siblings
    members: dict[int, Chunk] = field(default_factory=dict[int, Chunk])
    """By their numbers."""
    tokens: int = 0
    """Held together, as counted last."""


class Commons:
    """Of the requests that run on an instance, where it is known what they begin with."""

    def __init__(self, own_tokens: Callable[[Chunk], float], whole: Callable[[int], int]) -> None:
        """`own_tokens`: those that a request has by now; `whole`: how many first tokens of a text are in pages."""
        self.tokens = 0
        """Held together: what all hold is less than what each does by so many."""
        self._own_tokens, self._whole = own_tokens, whole
        self._groups: dict[GroupId, _Group] = {}
        self._growing: dict[GroupId, _Group] = {}
        """Those whose members may come to hold more together."""

    def enter(self, chunk: Chunk) -> None:
        """A request runs; nothing has grown since the last count."""
        if chunk.siblings is None:
            return
        number = chunk.request.group
        group = self._groups.setdefault(number, _Group(siblings=chunk.siblings))
        common, at_most = self._with(group, chunk)
        self._add(group, self._paged(chunk.prompt_tokens, common))
        group.members[chunk.request.sample] = chunk
        if common < at_most:
            self._growing[number] = group

    def leave(self, chunk: Chunk) -> None:
        """A request runs no more; nothing has grown since the last count."""
        if chunk.siblings is None:
            return
        number = chunk.request.group
        group = self._groups[number]
        del group.members[chunk.request.sample]
        common, _ = self._with(group, chunk)
        self._add(group, -self._paged(chunk.prompt_tokens, common))
        if not group.members:
            del self._groups[number]
            self._growing.pop(number, None)

    def refresh(self) -> None:
        """Count what requests have got in common since."""
        for number, group in list(self._growing.items()):
            self._count(number, group)

    def with_any(self, chunk: Chunk) -> int:
        """Return how many of a request's own tokens, which does not run, one of those holds that do."""
        group = self._groups.get(chunk.request.group)
        return 0 if group is None else self._paged(chunk.prompt_tokens, self._with(group, chunk)[0])

    def _with(self, group: _Group, chunk: Chunk) -> tuple[float, int]:
        """Return the most that a request has in common with a member, so far and at last."""
        have = {number: self._own_tokens(other) for number, other in group.members.items()}
        have[chunk.request.sample] = self._own_tokens(chunk)
        return _most(group.siblings, chunk.request.sample, list(group.members), have)

    def _add(self, group: _Group, tokens: int) -> None:
        group.tokens += tokens
        self.tokens += tokens

    def _count(self, number: GroupId, group: _Group) -> None:
        have = {number: self._own_tokens(chunk) for number, chunk in group.members.items()}
        tokens, grows = 0, False
        before: list[int] = []
        for sample, chunk in group.members.items():
            common, at_most = _most(group.siblings, sample, before, have)
            tokens += self._paged(chunk.prompt_tokens, common)
            grows |= common < at_most
            before.append(sample)
        self._add(group, tokens - group.tokens)
        if not grows:
            del self._growing[number]

    def _paged(self, prompt_tokens: int, common: float) -> int:
        """Return how many own tokens are in whole pages of a context that two have in common so far."""
        return self._whole(prompt_tokens + int(common)) - self._whole(prompt_tokens)


def _most(siblings: Siblings, sample: int, others: list[int], have: dict[int, float]) -> tuple[float, int]:
    """Return the most that a request has in common with another, of the tokens that both have, and of all."""
    row, own = siblings.common[sample], have[sample]
    common = max((min(row[other], have[other], own) for other in others), default=0)
    return common, max((row[other] for other in others), default=0)
