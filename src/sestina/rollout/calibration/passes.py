"""Times of steps in the engine as it serves: plain ones, verification, and those that chunks join."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean, median
from typing import TypeVar

import numpy as np
import torch

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest, ChunkResult
from sestina.core.units import Seconds, TokenArray
from sestina.models.shape import ModelShape
from sestina.rollout.calibration.forced import ForcedDrafts
from sestina.rollout.calibration.grid import JOINED_STEPS, Cell, Join
from sestina.rollout.calibration.lookups import Lookups
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.meter import Meter, meter_for
from sestina.rollout.pages import PAGE_TOKENS
from sestina.rollout.torch_engine import TorchEngine
from sestina.transport.codec import decode, encode
from sestina.transport.messages import ChunkEnded, StartChunk

Taken = TypeVar("Taken")

NO_TOKEN = -1
"""A stop token that is never drawn."""

STEPS = PAGE_TOKENS
"""Steps that a time is the mean of, after one that does not count: each sequence takes a new page once."""

JOINS = 3
"""Times that chunks join, of which a time is the median."""

APART = 8
"""Steps before chunks join: what is done for them is then as far from the caches as in a rollout."""


class Passes:
    """An engine with weights that decodes batches to be timed, on a CPU by processor time."""

    def __init__(
        self,
        config: TorchEngineConfig,
        shape: ModelShape,
        weights: Mapping[str, torch.Tensor],
        *,
        max_context_tokens: int,
    ) -> None:
        self._shape = shape
        self._meter, self._looking = meter_for(config.device), meter_for("cpu")
        self._drafts = ForcedDrafts(shape.vocab_size)
        self._engine = TorchEngine(
            config,
            shape,
            max_context_tokens=max_context_tokens,
            seed=1,
            stop_token=NO_TOKEN,
            speculator=self._drafts,
        )
        self._engine.load_weights(0, weights)
        self._random = np.random.default_rng(0)
        self._groups = 0
        self.joined: list[ChunkResult] = []
        """What the chunks came to that joined last."""

    def plain_s(self, cell: Cell) -> Seconds:
        """Return the time of a plain step; raises EngineError when the batch does not stay whole."""
        with self._decoding(cell):
            return fmean(self._steps(cell, 0, self._step_s)[1:])

    def drafted_s(self, cell: Cell, length: int) -> tuple[Seconds, Seconds]:
        """Return the time of a step that verifies drafts, and that of looking them up and learning what they came to.

        They take turns, as in a rollout: each finds the caches as the other has left them. Raises EngineError as
        `plain_s` does.
        """
        lookups = Lookups(cell, length, vocab_size=self._shape.vocab_size, steps=1 + STEPS)

        def take() -> tuple[Seconds, Seconds]:
            proposed_s = self._timed(lookups.propose, self._looking)
            step_s = self._step_s()
            return step_s, proposed_s + self._timed(lookups.learn, self._looking)

        with self._decoding(cell):
            steps, looked = zip(*self._steps(cell, length, take)[1:], strict=True)
        return fmean(steps), fmean(looked)

    def joined_s(self, join: Join) -> Seconds:
        """Return the time of the step that chunks join and the one they leave with; messages count.

        Between these all decode, as in a rollout, where who comes and who goes seldom shares a step.
        """
        with self._decoding(join.cell):
            same = [self._text(join.text_tokens) for _ in range(join.chunks)]
            texts = [same if join.cached else [self._text(len(text)) for text in same] for _ in range(1 + JOINS)]
            return median([self._join(each) for each in texts][1:])

    def _steps(self, cell: Cell, length: int, take: Callable[[], Taken]) -> list[Taken]:
        """Return what each step takes of a batch that decodes; raises EngineError when one holds something else."""
        self._drafts.length, self._drafts.steps = length, []
        times = [take() for _ in range(1 + STEPS)]
        wrong = [step for step in self._drafts.steps if step != (cell.batch, cell.batch * length)]
        if wrong:
            asked = f"{cell.batch} requests with {cell.batch * length} draft tokens"
            raise EngineError(f"calibration: a step of {asked} held {wrong[0][0]} with {wrong[0][1]}")
        return times

    def _step_s(self) -> Seconds:
        return self._timed(self._engine.step, self._meter)

    @contextmanager
    def _decoding(self, cell: Cell) -> Iterator[None]:
        """Keep a batch meanwhile all of which decodes, at first a few tokens short of the cell's context."""
        ids = [self._next_id() for _ in range(cell.batch)]
        random = np.random.default_rng([cell.batch, cell.sequence_tokens])  # the same texts again: they are cached
        for id in ids:
            prompt = random.integers(0, self._shape.vocab_size, cell.sequence_tokens - STEPS // 2).astype(np.int32)
            self._engine.submit(_request(id, prompt, cell.room_tokens))
        self._drafts.length, self._drafts.steps = 0, []
        while not self._drafts.steps:
            self._engine.step()
        try:
            yield
        finally:
            self._engine.abort(ids)
            self._engine.step()

    def _join(self, texts: list[TokenArray]) -> Seconds:
        """Let a chunk for each text come, draw its tokens and leave; returns what the first and last step take.

        Raises EngineError when they leave with another step.
        """
        frames = [encode([StartChunk(chunk=_request(self._next_id(), text, JOINED_STEPS))]) for text in texts]
        self.joined = []
        for _ in range(APART):
            self._engine.step()
        seconds = self._timed(lambda: self._come(frames), self._meter)
        for _ in range(JOINED_STEPS - 2):
            self.joined += self._engine.step()
        early = len(self.joined)
        seconds += self._timed(self._leave, self._meter)
        if early or len(self.joined) != len(texts):
            raise EngineError(
                f"calibration: of {len(texts)} chunks {early} left early, {len(self.joined) - early} with the last step"
            )
        return seconds

    def _come(self, frames: list[bytes]) -> None:
        for frame in frames:
            for message in decode(frame):
                assert isinstance(message, StartChunk)
                self._engine.submit(message.chunk)
        self.joined += self._engine.step()

    def _leave(self) -> None:
        self.joined += self._engine.step()
        kv = self._engine.load().kv
        encode([ChunkEnded(instance=0, result=result, clock_s=0.0, kv=kv) for result in self.joined])

    def _timed(self, work: Callable[[], object], meter: Meter) -> Seconds:
        began_s = meter()
        work()
        return meter() - began_s

    def _text(self, tokens: int) -> TokenArray:
        return self._random.integers(0, self._shape.vocab_size, tokens).astype(np.int32)

    def _next_id(self) -> RequestId:
        self._groups += 1
        return RequestId(self._groups, 0)


def _request(id: RequestId, prompt: TokenArray, max_tokens: int) -> ChunkRequest:
    return ChunkRequest(
        id=id,
        prompt=prompt,
        generated=np.zeros(0, np.int32),
        max_tokens=max_tokens,
        max_new_tokens=max_tokens,
        temperature=1.0,
    )
