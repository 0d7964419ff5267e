"""Keys and values that an instance still holds for nobody: they serve whoever comes back, until their room is needed.

As pages do in the embedded engine's pool, the least recently released give way first; here whole entries.
"""

from sestina.core.ids import GroupId, RequestId

Owner = RequestId | GroupId
"""A response's own tokens, or a group's prompt."""


class IdlePrefixes:
    """Tokens by owner, in order of release."""

    def __init__(self) -> None:
        self._tokens: dict[Owner, int] = {}
        self.total = 0
        """Tokens of all."""

    def release(self, owner: Owner, tokens: int) -> None:
        """Nobody holds these any more."""
        self._tokens[owner] = tokens
        self.total += tokens

    def take(self, owner: Owner) -> int:
        """Return the tokens that are there for an owner, who holds them from then on."""
        tokens = self._tokens.pop(owner, 0)
        self.total -= tokens
        return tokens

    def tokens_of(self, owner: Owner) -> int:
        """Return the tokens that are there for an owner."""
        return self._tokens.get(owner, 0)

    def forget(self) -> None:
        """Weights have changed: nothing that is there serves anybody."""
        self._tokens.clear()
        self.total = 0

    def shrink(self, room: float) -> None:
        """Give up entries until the others fit."""
        while self.total > room:
            self.take(next(iter(self._tokens)))
