"""Keeps one server alive, with the weights it must have.

A server can be lost: it crashes, is killed, or stops answering, and then is killed here. Every call under way breaks
off; the first to notice starts a new server and gives it the weights this rank has kept.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from torch import Tensor

from sestina.core.errors import EngineError, RunError
from sestina.core.units import Seconds, Version
from sestina.rollout.sglang.client import ServerLoad, ServerLostError
from sestina.rollout.sglang.counted import Counted
from sestina.rollout.sglang.disk import send_by_disk
from sestina.rollout.sglang.life import Life
from sestina.rollout.sglang.server import ServerSetup

_log = logging.getLogger(__name__)

LOOK_S: Seconds = 1.0
"""Pause between two looks at the server."""


class Keeper:
    """One server at any time; `begin` starts the first. Use within one event loop."""

    def __init__(self, setup: ServerSetup, life: Life) -> None:
        self.life = life
        self.load = ServerLoad()
        """What the server said of itself at the last look."""
        self.looks = 0
        self.restarts = 0
        self._setup, self._config = setup, setup.config
        self._weights: tuple[Version, Mapping[str, Tensor]] | None = None
        self._refused = False
        self._renewal = asyncio.Lock()

    @classmethod
    async def begin(cls, setup: ServerSetup) -> "Keeper":
        """Start a server; raises EngineError when it does not come up."""
        return cls(setup, await Life.begin(setup))

    async def ready(self) -> Life:
        """Return the server once it is there and has its weights."""
        async with self._renewal:
            return self.life

    @property
    def version(self) -> Version:
        """Of the weights that the server has, or is being given."""
        assert self._weights is not None, "chunks are only in flight with weights"
        return self._weights[0]

    async def give(self, version: Version, tensors: Mapping[str, Tensor], *, keep_kv: bool = False) -> None:
        """Give the server these weights, and every one to come; keeps the tensors.

        Requests under way go on, their keys and values computed again, or with `keep_kv` left as they are. Raises
        WeightsError or EngineError when a server takes them neither by broadcast nor by disk.
        """
        self._weights = version, tensors
        life = self.life
        try:
            async with self._renewal:  # a server that is being started is given weights there: not both at once
                life = self.life
                await self._deliver(keep_kv=keep_kv)
        except ServerLostError as error:
            await self.renew(life, error)

    async def renew(self, lost: Life, why: ServerLostError) -> None:
        """Start another server with the kept weights, unless somebody has done so since `lost`."""
        async with self._renewal:
            if self.life is not lost:
                return None
            while True:
                self._count(why)
                await self.life.end()
                self.life = await Life.begin(self._setup)
                try:
                    return await self._deliver()
                except ServerLostError as error:
                    why = error

    async def look(self) -> None:
        """See to it, for as long as chunks are under way, that a server which does not answer is given up."""
        while True:
            await asyncio.sleep(LOOK_S)
            life = self.life
            if self._renewal.locked():
                self.looks += 1  # starting a server has a limit of its own
            elif await life.client.alive(self._config.silence_s):
                self.looks += 1
                with suppress(EngineError):  # lost since; the next look finds out
                    self.load = await life.client.load(self._config.silence_s)
            elif life is self.life and life.process.exit_code is None:
                _log.warning("SGLang has not answered for %g s", self._config.silence_s)
                life.process.kill()

    async def take_counted(self) -> Counted | None:
        """Return what the server has counted of drafts since the last call; None when it is lost, and that with it."""
        life = await self.ready()
        try:
            return await life.take_counted(self._config.silence_s)
        except ServerLostError as error:
            _log.warning("what SGLang has counted of its drafts is lost: %s", error)
            return None

    async def end(self) -> None:
        """End the server; calls under way fail."""
        await self.life.end()

    async def _deliver(self, *, keep_kv: bool = False) -> None:
        """A flush is refused where requests hold keys and values: those of other weights are then found by nobody."""
        async with self.life.client.paused("in_place" if keep_kv else "retract", self._config.start_s):
            await self._send(flush=not keep_kv)

    async def _send(self, *, flush: bool) -> None:
        assert self._weights is not None, "chunks are only in flight with weights"
        if self._refused or self.life.relay is None:
            return await send_by_disk(self.life.client, *self._weights, flush=flush, limit_s=self._config.start_s)
        try:
            await self.life.relay.send(*self._weights, flush=flush)
        except ServerLostError:
            raise
        except RunError as error:
            self._refused = True  # what it has of the update is unknown: the next server starts from nothing
            raise ServerLostError(
                f"it did not take weights by broadcast, the next one gets them by disk: {error}"
            ) from None

    def _count(self, why: ServerLostError) -> None:
        self.restarts += 1
        if self.restarts > self._config.max_restarts:
            raise EngineError(
                f"SGLang was lost {self.restarts} times, rollout.engine.max_restarts is "
                f"{self._config.max_restarts}: {why}; {self.life.process.last_words()}"
            )
        _log.warning("SGLang is lost (%s) and is started again: %s", why, self._setup.log)
