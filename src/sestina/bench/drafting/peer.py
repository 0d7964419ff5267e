"""ArcticInference's suffix tree (PyPI arctic-inference), what vLLM's `suffix` drafting uses, where it is installed.

It is asked as its own cache asks it: a tree of the request's prompt and response, and one of all responses; the draft
of the higher score counts. Times are those of its native calls, less what a call on an empty tree takes.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

import numpy as np

from sestina.core.units import TokenArray

NO_LIMIT = 1e9
"""Factor that takes back its limit of drafted tokens by match length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a draft, of either side."""

    max_tokens: int
    tree: bool = False
    min_token_prob: float = 0.1


@dataclass(slots=True)
class Meter:
    """CPU time spent in calls, or wall time where one call alone is of interest."""

    call_ns: int
    """Of an empty call, which is taken off; the clock's own time is in it."""
    clock: Callable[[], int] = time.thread_time_ns
    spent_ns: int = 0

    def add(self, start_ns: int) -> None:
        """Count a call that began at `start_ns`."""
        self.spent_ns += max(0, self.clock() - start_ns - self.call_ns)


class Peer:
    """One store of responses."""

    def __init__(self, module: ModuleType, depth: int, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._module, self._depth = module, depth
        self._stored = module.SuffixTree(depth)
        self._num_streams = 0
        self.meter = Meter(_empty_call_ns(module, depth, clock), clock)

    def start(self, prompt: TokenArray) -> "PeerStream":
        """Start a request."""
        own = self._module.SuffixTree(self._depth)
        if len(prompt):
            own.extend_ndarray(0, prompt)
        self._num_streams += 1
        return PeerStream(number=self._num_streams, own=own)

    def append(self, stream: "PeerStream", tokens: TokenArray) -> None:
        """Extend a response by a chunk."""
        start_ns = self.meter.clock()
        stream.own.extend_ndarray(0, tokens)
        self._stored.extend_ndarray(stream.number, tokens)
        self.meter.add(start_ns)

    def store(self, stream: "PeerStream", tokens: TokenArray) -> None:
        """Extend a response that will not draft any more."""
        self._stored.extend_ndarray(stream.number, tokens)

    def draft(self, stream: "PeerStream", context: TokenArray, asked: Asked) -> Any:  # noqa: ANN401 - the peer's type
        """Draft from the end of `context`, the last `depth` tokens of the request."""
        args = (context, asked.max_tokens, NO_LIMIT, 0.0, asked.min_token_prob, asked.tree)
        start_ns = self.meter.clock()
        own, stored = stream.own.speculate_ndarray(*args), self._stored.speculate_ndarray(*args)
        draft = own if own.score >= stored.score else stored
        self.meter.add(start_ns)
        return draft

    def rehearse(self, stream: "PeerStream", prompt: TokenArray, text: TokenArray, asked: Asked) -> tuple[int, int]:
        """Append a text in the steps in which it would have been decoded; returns steps and drafted tokens."""
        said, end = np.concatenate([prompt, text]), len(prompt)
        steps = drafted = 0
        while end < len(said):
            draft = self.draft(stream, said[max(0, end - self._depth) : end], asked)
            tokens, parents = draft.token_ids, draft.parents
            taken = min(accepted(tokens, parents, said[end : end + asked.max_tokens].tolist()) + 1, len(said) - end)
            self.append(stream, said[end : end + taken])
            steps, drafted, end = steps + 1, drafted + len(tokens), end + taken
        return steps, drafted


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStream:
    """A request of the peer."""

    number: int
    own: Any
    """Its tree of prompt and response."""


def load_peer() -> ModuleType | None:
    """Return the peer's module, None where it is not installed."""
    try:
        return importlib.import_module("arctic_inference.suffix_decoding.cache")
    except ModuleNotFoundError:
        return None


def peer_version() -> str:
    """Return the version that is installed."""
    try:
        return version("arctic-inference")
    except PackageNotFoundError:
        return "of unknown version"


def accepted(tokens: list[int], parents: list[int], said: list[int]) -> int:
    """Return how many tokens a draft had of what was said, along one of its paths."""
    depth, at = 0, -1
    for i, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if depth < len(said) and parent == at and token == said[depth]:
            depth, at = depth + 1, i
    return depth


def _empty_call_ns(module: ModuleType, depth: int, clock: Callable[[], int]) -> int:
    tree, context = module.SuffixTree(depth), np.zeros(1, np.int32)
    spans: list[int] = []
    for _ in range(1000):
        start_ns = clock()
        tree.speculate_ndarray(context, 1, 1.0, 0.0, 0.1, False)
        spans.append(clock() - start_ns)
    return int(np.median(spans))
