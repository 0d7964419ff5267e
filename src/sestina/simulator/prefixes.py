"""Keys and values that an instance still holds for nobody: they serve whoever comes back, until their room is needed.

As pages do in the embedded engine's pool, the least recently released give way first; here whole entries.
"""

from sestina.core.ids import GroupId, RequestId

Owner = RequestId | GroupId
"""A response's own tokens, or a group's prompt."""


class IdlePrefixes:
    """Tokens by owner, in order of release."""

    def __init__(self) -> None:
        self._tokens: dict[Owner, tuple[int, int]] = {}
        self.total = 0
        """Tokens of all; what several have in common counts once."""

    def release(self, owner: Owner, tokens: int, common: int = 0) -> None:
        """Nobody holds these any more; `common`: how many of them are there for another already."""
        self._tokens[owner] = tokens, tokens - common
        self.total += tokens - common

    def take(self, owner: Owner) -> int:
        """Return the tokens that are there for an owner, who holds them from then on."""
        tokens, counted = self._tokens.pop(owner, (0, 0))
        self.total -= counted
        return tokens

    def tokens_of(self, owner: Owner) -> int:
        """Return the tokens that are there for an owner."""
        return self._tokens.get(owner, (0, 0))[0]

    def forget(self) -> None:
        """Weights have changed: nothing that is there serves anybody."""
        self._tokens.clear()
        self.total = 0

    def shrink(self, room: float) -> None:
        """Give up entries until the others fit."""
        while self.total > room:
            self.take(next(iter(self._tokens)))
