"""Which tokens of a request SGLang draws over keys and values that older weights have left."""


class Kept:
    """Of one request; sliced as SGLang slices what it sends with tokens."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._since: int | None = None

    def begin(self, at: int) -> None:
        """The next token, the one at this index, is one of them, and so are those after it."""
        self._since = at if self._since is None else self._since

    def end(self, at: int) -> None:
        """The token at this index is none of them, nor those after it."""
        if self._since is not None:
            self._spans.append((self._since, at))
        self._since = None

    def __getitem__(self, part: slice) -> list[int]:
        """Return 0 or 1 for each token."""
        open_ = [] if self._since is None else [(self._since, part.stop)]
        return [int(any(a <= i < b for a, b in self._spans + open_)) for i in range(part.start, part.stop)]
