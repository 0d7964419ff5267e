"""What the drafters of a server have counted; it counts on from its start, and its rank takes what is new."""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import msgspec

from sestina.core.tally import DraftTally
from sestina.rollout.speculation.tally import Tally

FIELD = "sestina_drafts"
"""Of each scheduler's state in SGLang's /server_info, written by sestina.sglang_plugin."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """By one scheduler of a server, or by all, as `DraftDesk` has it."""

    tally: DraftTally
    counts: dict[str, int]


class ServerTally(Tally):
    """A tally of which the server does the counting."""

    def __init__(self, counts: Counter[str], ask: Callable[[], Counted | None]) -> None:
        """`counts` are the desk's, which `take` adds to; `ask` returns None when the server is lost."""
        super().__init__()
        self._counts = counts
        self._ask = ask

    def take(self) -> DraftTally:
        """See `Tally.take`; asks the server."""
        counted = self._ask()
        if counted is None:
            return super().take()
        self._counts.update(counted.counts)
        return counted.tally


def total(schedulers: Sequence[Counted]) -> Counted:
    """Return what all schedulers of a server have counted, one at least; they draft from the same sources."""
    return _counted(reduce(partial(_joined, operator.add), map(msgspec.to_builtins, schedulers)))


def since(before: Counted | None, now: Counted) -> Counted:
    """Return what has come since `before`; None: all."""
    if before is None:
        return now
    return _counted(_joined(operator.sub, msgspec.to_builtins(now), msgspec.to_builtins(before)))


def _joined(combine: Callable[[float, float], float], one: Any, other: Any) -> Any:  # noqa: ANN401 - a tree of numbers
    """Combine every two numbers at one place; a name that one side lacks counts nothing there."""
    match one, other:
        case dict(), dict():
            return {key: _joined(combine, one.get(key, 0), other.get(key, 0)) for key in one | other}
        case ((list() | tuple()), (list() | tuple())):
            return [_joined(combine, *pair) for pair in zip(one, other, strict=True)]
        case _:
            return combine(one, other)


def _counted(tree: object) -> Counted:
    return msgspec.convert(tree, Counted)
