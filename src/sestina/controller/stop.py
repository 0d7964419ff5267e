"""Somebody asks the run to stop: a first SIGINT or SIGTERM. A second one ends the process at once."""

import asyncio
import logging
import signal
from collections.abc import Callable

_log = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a stop has been asked for; listens to signals from `listen` on."""

    def __init__(self) -> None:
        self.asked = False
        self.on_ask: Callable[[], object] | None = None
        """Called once, when the stop is asked for."""

    def listen(self) -> None:
        """Take the signals; called in the event loop that the run lives in."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        _log.warning("%s: leaving after this step; once more leaves at once", number.name)
        loop = asyncio.get_running_loop()
        for other in SIGNALS:
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)
        self.asked = True
        if self.on_ask is not None:
            self.on_ask()
