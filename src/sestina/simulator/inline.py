"""What a thread beside an engine does, in an emulated world: its time is on that engine's clock, as on one core."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Inline(Executor):
    """Does what it is given at once, in the thread that asks."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Return what has been done already; raises what that raises."""
        done: Future[_T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
