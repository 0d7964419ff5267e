"""The KV cache's pages: a fixed number of them, shared between requests that begin with the same tokens.

A page holds PAGE_TOKENS consecutive tokens. Full pages enter a radix tree keyed by their tokens under their parent
page, so a path from the root spells a prefix. A page is *held* by the requests that use it; a full page nobody holds
stays *idle* in the tree, still able to serve a prefix, until its room is needed (least recently released first).
Requests release whole paths from the tail up, so a parent is never evicted before its children.

A page that is held and not in the tree is *private* to its request. A full one is a copy where its tokens stand in the
tree already, which `publish` says; its request then exchanges it, and all that follows stays on one path for all.

    free -> private (allocate) -> in the tree (publish) -> idle (release) -> held (match) | free (allocate evicts)
                        a copy -> free, and the page in the tree held in its place (exchange)
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sestina.core.units import TokenArray

PAGE_TOKENS = 16
"""Tokens per page: one vector register of the CPU kernels (native/kernels.h, kPageTokens)."""

PRIVATE = 1 << 40
"""As a number of pages known to the prefix tree: no further one will be."""

_ROOT = -1


def pages_for(tokens: int) -> int:
    """Return how many pages hold this many tokens."""
    return -(-tokens // PAGE_TOKENS)


@dataclass(slots=True)
class _Node:
    parent: int
    key: bytes
    children: dict[bytes, int] = field(default_factory=dict)


class PagePool:
    """Allocates pages and remembers which prefix each full one holds.

    Example:
        >>> pool = PagePool(num_pages=2)
        >>> page = pool.allocate()
        >>> tokens = np.arange(PAGE_TOKENS, dtype=np.int32)
        >>> pool.publish(page, None, tokens) == page
        True
        >>> pool.release([page])
        >>> pool.match(tokens) == [page]
        True
    """

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = [0] * num_pages
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._nodes: dict[int, _Node] = {_ROOT: _Node(_ROOT, b"")}

    @property
    def num_available(self) -> int:
        """Pages that `allocate` can still give."""
        return len(self._free) + len(self._idle)

    def allocate(self) -> int | None:
        """Return an empty page held once, evicting the least recently released idle one; None when all are held."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        else:
            return None
        self._holders[page] = 1
        return page

    def match(self, tokens: TokenArray) -> list[int]:
        """Hold and return the longest path of full pages that spells a prefix of `tokens`."""
        pages: list[int] = []
        node = self._nodes[_ROOT]
        for start in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
            page = node.children.get(tokens[start : start + PAGE_TOKENS].tobytes())
            if page is None:
                break
            self._hold(page)
            pages.append(page)
            node = self._nodes[page]
        return pages

    def publish(self, page: int, parent: int | None, tokens: TokenArray) -> int:
        """Enter a private, full page into the tree below `parent` (None: at the root), unless its tokens stand there.

        Returns the page that then stands there. A page below one that is not in the tree stays private.
        """
        above = _ROOT if parent is None else parent
        node = self._nodes.get(above)
        if node is None:
            return page
        key = tokens.tobytes()
        standing = node.children.setdefault(key, page)
        if standing == page:
            self._nodes[page] = _Node(above, key)
        return standing

    def exchange(self, copy: int, standing: int) -> None:
        """Hold a page of the tree in place of a private copy of it, which becomes free."""
        self._hold(standing)
        self.release([copy])

    def release(self, pages: Sequence[int]) -> None:
        """Give back one hold on each page of a request's path, listed from the root down."""
        for page in reversed(pages):
            self._holders[page] -= 1
            if self._holders[page]:
                continue
            if page in self._nodes:
                self._idle[page] = None
            else:
                self._free.append(page)

    def forget_all(self) -> None:
        """Drop every cached prefix; held pages stay held and become private."""
        self._free.extend(reversed(self._idle))
        self._idle.clear()
        self._nodes = {_ROOT: _Node(_ROOT, b"")}

    def check_integrity(self) -> str | None:
        """Return what is inconsistent, or None; mutates nothing."""
        states = [*self._free, *self._idle, *(p for p, n in enumerate(self._holders) if n)]
        if sorted(states) != list(range(self.num_pages)):
            return "a page is lost or in two states"
        for page, node in self._nodes.items():
            if page != _ROOT and self._nodes[node.parent].children.get(node.key) != page:
                return f"page {page} is not its parent's child"
            if page in self._idle and any(self._holders[child] for child in node.children.values()):
                return f"page {page} is idle below a held child"
        order = {page: i for i, page in enumerate(self._idle)}
        for page, node in self._nodes.items():
            if page in order and order.get(node.parent, self.num_pages) < order[page]:
                return f"page {page} would be evicted after its parent"
        return None

    def _hold(self, page: int) -> None:
        if not self._holders[page]:
            del self._idle[page]
        self._holders[page] += 1

    def _forget(self, page: int) -> None:
        node = self._nodes.pop(page)
        del self._nodes[node.parent].children[node.key]
