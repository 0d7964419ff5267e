"""A rollout instance of an emulated world: a real engine, whose steps take on its own clock what they really took."""

from collections.abc import Mapping
from typing import TypeAlias

import torch

from sestina.core.units import InstanceId, Seconds, Version
from sestina.policies.events import InstanceUp
from sestina.rollout.engine import Engine
from sestina.simulator.clock import VirtualClock
from sestina.transport.codec import decode, encode
from sestina.transport.messages import AbortChunks, ChunkEnded, Message, StartChunk

Weights: TypeAlias = Mapping[str, torch.Tensor]


class EmulatedInstance:
    """Between steps it reads what has arrived and sends what has ended, as a rollout rank does."""

    def __init__(
        self,
        instance: InstanceId,
        engine: Engine,
        clock: VirtualClock,
        weights: Weights | None = None,
        *,
        drains: bool = False,
    ) -> None:
        """`weights`: what it loads when a chunk asks for a newer version.

        `drains`: weights that are published are taken when what it runs has ended, and nothing is begun before.
        """
        self.id = instance
        self.engine = engine
        self.stepping = False
        """Whether it is in the middle of a step."""
        self._clock = clock
        self._weights = weights
        self._drains = drains
        self._arrived: list[bytes] = []
        self._update: tuple[Version, Weights] | None = None

    def up(self) -> InstanceUp:
        """Return what the planner is told of it."""
        info = self.engine.info()
        return InstanceUp(
            instance=self.id,
            kv_capacity_tokens=info.kv_capacity_tokens,
            page_tokens=info.page_tokens,
            max_running=info.max_running,
        )

    def arrive(self, frame: bytes) -> None:
        """Messages lie at its door."""
        self._arrived.append(frame)

    def update(self, version: Version, tensors: Weights) -> None:
        """Weights lie at its door."""
        self._update = version, tensors

    @property
    def has_work(self) -> bool:
        """Whether there is a step to take."""
        return self._takes_weights or self._reads or not self.engine.idle

    @property
    def _takes_weights(self) -> bool:
        return self._update is not None and (self.engine.idle or not self._drains)

    @property
    def _reads(self) -> bool:
        return bool(self._arrived) and self._update is None

    def step(self, at: Seconds) -> tuple[Seconds, bytes | None]:
        """Begin a step at an instant; returns when it is over, and a frame of the chunks that ended, if any has.

        Taking weights is a step too.
        """
        self._clock.wait_until(at)
        with self._clock.working():
            if self._update is not None and self._takes_weights:
                self.engine.load_weights(*self._update)
                self._update, frame = None, None
            else:
                frame = self._advance()
        return self._clock(), frame

    def _advance(self) -> bytes | None:
        if self._reads:
            for message in [message for frame in self._arrived for message in decode(frame)]:
                self._handle(message)
            self._arrived.clear()
        results = self.engine.step()
        if not results:
            return None
        now, kv = self._clock(), self.engine.load().kv
        return encode([ChunkEnded(instance=self.id, result=result, clock_s=now, kv=kv) for result in results])

    def _handle(self, message: Message) -> None:
        match message:
            case StartChunk():
                self._turn(message.version)
                self.engine.submit(message.chunk)
            case AbortChunks():
                self.engine.abort(list(message.ids))
            case _:
                raise AssertionError(f"an instance cannot answer {type(message).__name__}")

    def _turn(self, version: Version | None) -> None:
        loaded = self.engine.version
        if version is not None and loaded is not None and version > loaded:
            assert self._weights is not None, "a chunk asks for weights in a world that has those of the start alone"
            self.engine.load_weights(version, self._weights)
