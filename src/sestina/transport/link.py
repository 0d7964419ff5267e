"""A rank's link to the controller: messages both ways, signs of life both ways."""

import time
from collections.abc import Callable

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.transport.messages import Heartbeat, Hello, Message, Ping
from sestina.transport.mpi import IDLE_SLEEP_S, Mailbox, Pause
from sestina.transport.world import World, whoami

HEARTBEAT_S: Seconds = 1.0
"""How often a rank and the controller tell each other that they are alive."""


class Link:
    """One owner, one thread. Says hello when built."""

    def __init__(self, world: World, *, silence_s: Seconds) -> None:
        self._bells = world.bells
        self._mailbox = Mailbox(world.comm, self._bells)
        self._controller = world.layout.controller
        self._silence_s = silence_s
        self._heard_s = self._beaten_s = self._polled_s = time.monotonic()
        self._pause = Pause(IDLE_SLEEP_S)
        self.send(Hello(role=world.role, index=world.index, **whoami()))
        self._mailbox.flush()

    def send(self, *messages: Message) -> None:
        """Queue messages to the controller; they leave with the next `poll`."""
        for message in messages:
            self._mailbox.send(self._controller, message)

    def poll(self, heartbeat: Callable[[], Message]) -> list[Message]:
        """Return what the controller sent, pings left out; never waits. Sends what `heartbeat` returns when one is due.

        Raises DeadlineError when the controller has been silent for too long. It answers signs of life, so that time in
        which this rank did other work and gave none counts little.
        """
        now = time.monotonic()
        self._heard_s += max(0.0, now - self._polled_s - HEARTBEAT_S)
        self._polled_s = now
        if now - self._beaten_s >= HEARTBEAT_S:
            self._beaten_s = now
            self.send(heartbeat())
        messages = [message for _, message in self._mailbox.poll()]
        if messages:
            self._heard_s = now
            self._pause.reset()
        elif now - self._heard_s > self._silence_s:
            raise DeadlineError("a sign of life from the controller", self._silence_s)
        return [message for message in messages if not isinstance(message, Ping)]

    def announce(self, phase: str) -> None:
        """Say what comes next, before work that keeps this rank from polling."""
        self.send(Heartbeat(phase=phase))
        self._mailbox.flush()

    def rest(self) -> None:
        """Sleep until something comes; a while at most, longer while nothing does: for a rank with nothing to do."""
        if self._bells.wait(self._pause.next_s()):
            self._pause.reset()

    def close(self, limit_s: Seconds) -> None:
        """Return when everything queued has left; raises DeadlineError after `limit_s`."""
        self._mailbox.drain(limit_s)
