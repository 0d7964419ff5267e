"""Time that stands still except while its owner works, and then passes as fast as that really takes."""

from collections.abc import Iterator
from contextlib import contextmanager

from sestina.core.units import Seconds
from sestina.rollout.meter import Meter


def nothing_takes_time() -> Seconds:
    """Be the meter of work that is not to count."""
    return 0.0


class VirtualClock:
    """The time of one part of an emulated world."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._at: Seconds = 0.0
        self._began: Seconds | None = None

    def __call__(self) -> Seconds:
        """Return how late it is."""
        return self._at if self._began is None else self._at + self._meter() - self._began

    def wait_until(self, at: Seconds) -> None:
        """Let time pass without work; an instant that has passed changes nothing."""
        assert self._began is None, "waiting in the middle of work"
        self._at = max(self._at, at)

    @contextmanager
    def working(self) -> Iterator[None]:
        """What is done meanwhile takes as long as it takes."""
        self._began = self._meter()
        try:
            yield
        finally:
            self._at, self._began = self(), None
