"""Somebody asks the run to stop: a first SIGINT or SIGTERM, or a word in a file. A second signal ends the process."""

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from sestina.controller.ending import end_if_over
from sestina.core.units import Seconds

_log = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOK_S: Seconds = 0.5
"""How often the file is read."""


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
        self._ask()

    async def watch(self, path: Path) -> None:
        """Read, until cancelled, a file that may come to hold why to stop; who writes it may be on another node."""
        while True:
            end_if_over(path)
            if not self.asked and path.exists() and (why := path.read_text(encoding="utf-8").strip()):
                _log.warning("%s: leaving after this step", why)
                self._ask()
            await asyncio.sleep(LOOK_S)

    def _ask(self) -> None:
        self.asked = True
        if self.on_ask is not None:
            self.on_ask()
