"""The controller's side of the control plane: orders with deadlines, chunks as they end, signs of life both ways."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sestina.core.errors import DeadlineError
from sestina.core.tally import DraftTally
from sestina.core.units import Seconds
from sestina.telemetry.status import RankProcess
from sestina.transport.link import HEARTBEAT_S
from sestina.transport.messages import Bye, ChunkEnded, DraftReport, Heartbeat, Hello, LoadReport, Message, Ping, Stop
from sestina.transport.mpi import QUIET_SLEEP_S, Mailbox, Pause
from sestina.transport.world import Layout, World, whoami

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer", bound=Message)


class Ranks:
    """Owns the mailbox; one asyncio task runs `pump` for as long as anything is to arrive."""

    def __init__(self, world: World, *, silence_s: Seconds) -> None:
        self._bells = world.bells
        self._mailbox = Mailbox(world.comm, self._bells)
        self._rung = asyncio.Event()
        """Something has come, or is to leave."""
        self._silence_s = silence_s
        self.on_chunk: Callable[[ChunkEnded], None] | None = None
        """Takes the chunks that ended; set before the first one is sent."""
        self.on_load: Callable[[LoadReport], None] | None = None
        """Takes what rollout ranks say of their load; set with `on_chunk`."""
        self._answers: dict[tuple[int, type[Message]], asyncio.Future[Message]] = {}
        self._early: dict[tuple[int, type[Message]], Message] = {}
        """Answers that came before they were asked for: a rank says by itself that it is ready."""
        self._heard_s: dict[int, Seconds] = {}
        self._spoke: set[int] = set()
        """Who has said something since the last ping."""
        self._pinged_s = time.monotonic()
        self._leaving = False
        self.layout: Layout = world.layout
        self.hellos: dict[int, Hello] = {}
        self.loads: dict[int, LoadReport] = {}
        """Latest report of each rollout rank."""
        self.draft_tallies: list[DraftTally] = []
        """What came of drafts, not yet recorded."""

    @property
    def first_trainer(self) -> int:
        """The trainer rank that speaks for all."""
        return self.layout.trainers[0]

    def processes(self) -> tuple[RankProcess, ...]:
        """Return this rank and those that have said hello."""
        own = RankProcess(name=self.layout.name(self.layout.controller), **whoami())
        others = [
            RankProcess(name=self.layout.name(rank), host=hello.host, pid=hello.pid)
            for rank, hello in sorted(self.hellos.items())
        ]
        return (own, *others)

    def send(self, rank: int, message: Message) -> None:
        """Queue a message; `pump` posts it."""
        self._mailbox.send(rank, message)
        self._rung.set()

    def tell_rollouts(self, message: Message) -> None:
        """Queue a message for every rollout rank, unless they are leaving."""
        for rank in () if self._leaving else self.layout.rollouts:
            self.send(rank, message)

    async def ask(
        self, rank: int, order: Message | None, answer: type[Answer], limit_s: Seconds, awaited: str
    ) -> Answer:
        """Send an order, if any, and return the rank's answer.

        Raises DeadlineError naming the rank and `awaited` after `limit_s`.
        """
        key = (rank, answer)
        assert key not in self._answers, f"{answer.__name__} of rank {rank} is awaited already"
        if order is None and key in self._early:
            return self._early.pop(key)  # type: ignore[return-value] - kept under its own type
        self._answers[key] = future = asyncio.get_running_loop().create_future()
        if order is not None:
            self.send(rank, order)
        try:
            async with asyncio.timeout(limit_s):
                return await future
        except TimeoutError:
            raise DeadlineError(f"{self.layout.name(rank)}: {awaited}", limit_s) from None
        finally:
            del self._answers[key]

    async def pump(self) -> None:
        """Post and take messages until cancelled; raises DeadlineError when a rank that should speak is silent."""
        asyncio.get_running_loop().add_reader(self._bells, self._hear)
        try:
            await self._exchange()
        finally:
            asyncio.get_running_loop().remove_reader(self._bells)

    async def _exchange(self) -> None:
        pause = Pause(QUIET_SLEEP_S)
        while True:
            self._rung.clear()
            arrived = self._mailbox.poll()
            now = time.monotonic()
            for rank, message in arrived:
                self._take(rank, message, now)
            if any(not isinstance(message, Heartbeat | LoadReport) for _, message in arrived):
                pause.reset()
            self._check_life(now)
            await self._until_rung(pause.next_s())

    def _hear(self) -> None:
        self._bells.hush()
        self._rung.set()

    async def _until_rung(self, limit_s: Seconds) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._rung.wait()
        except TimeoutError:
            return  # nobody rings from other machines

    async def stop_all(self, limit_s: Seconds) -> None:
        """Let every rank go; returns when none has anything more to say. Nothing is sent to them after that."""
        self._leaving = True
        listeners = (*self.layout.rollouts, self.first_trainer)
        await asyncio.gather(*(self.ask(rank, Stop(), Bye, limit_s, "to leave") for rank in listeners))

    def _take(self, rank: int, message: Message, now: Seconds) -> None:
        self._heard_s[rank] = now
        self._spoke.add(rank)
        match message:
            case ChunkEnded():
                assert self.on_chunk is not None, "a chunk ended that nobody sent"
                self.on_chunk(message)
            case DraftReport():
                self.draft_tallies.append(message.tally)
            case LoadReport():
                self.loads[rank] = message
                if self.on_load is not None:
                    self.on_load(message)
            case Heartbeat():
                _log.debug("%s: %s", self.layout.name(rank), message.phase)
            case Hello():
                self.hellos[rank] = message
            case _ if (rank, type(message)) in self._answers:
                self._answers[rank, type(message)].set_result(message)
            case _:
                self._early[rank, type(message)] = message

    def _check_life(self, now: Seconds) -> None:
        """Ranks that owe an answer have that answer's deadline instead.

        Only who speaks is pinged: what a rank that is busy for minutes does not take fills the few cells of shared
        memory that MPICH keeps for all that the controller sends, and then nobody hears from it.
        """
        if self._leaving or now - self._pinged_s < HEARTBEAT_S:
            return
        self._pinged_s = now
        owing = {rank for rank, _ in self._answers}
        for rank in self._spoke:
            self.send(rank, Ping())
        self._spoke.clear()
        for rank, heard_s in self._heard_s.items():
            if rank not in owing and now - heard_s > self._silence_s:
                raise DeadlineError(f"a sign of life from {self.layout.name(rank)}", self._silence_s)
