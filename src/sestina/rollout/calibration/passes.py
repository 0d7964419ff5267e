"""Times of plain steps and of verification, in the engine as it serves."""

from collections.abc import Mapping
from statistics import median

import numpy as np
import torch

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.core.units import Seconds
from sestina.models.shape import ModelShape
from sestina.rollout.calibration.forced import ForcedDrafts
from sestina.rollout.calibration.grid import Cell
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.meter import meter_for
from sestina.rollout.torch_engine import TorchEngine

NO_TOKEN = -1
"""A stop token that is never drawn."""

REPEATS = 15
"""Steps that a time is the median of, after one that does not count."""


class Passes:
    """An engine with weights that decodes batches to be timed."""

    def __init__(
        self,
        config: TorchEngineConfig,
        shape: ModelShape,
        weights: Mapping[str, torch.Tensor],
        *,
        max_context_tokens: int,
    ) -> None:
        self._shape = shape
        self._drafts = ForcedDrafts(shape.vocab_size)
        self._engine = TorchEngine(
            config,
            shape,
            max_context_tokens=max_context_tokens,
            seed=1,
            stop_token=NO_TOKEN,
            speculator=self._drafts,
            clock=meter_for(config.device),
        )
        self._engine.load_weights(0, weights)
        self._groups = 0

    def seconds(self, cell: Cell) -> dict[int, Seconds]:
        """Return the time of a step by draft length, 0 being the plain one.

        Raises EngineError when the batch does not stay whole.
        """
        ids = self._fill(cell)
        try:
            return {length: self._step_s(cell.batch, length) for length in (0, *cell.lengths)}
        finally:
            self._engine.abort(ids)
            self._engine.step()

    def _fill(self, cell: Cell) -> list[RequestId]:
        """Bring a batch to where all of it decodes."""
        random = np.random.default_rng([cell.batch, cell.sequence_tokens])
        ids = [RequestId(self._groups + i, 0) for i in range(cell.batch)]
        self._groups += cell.batch
        for id in ids:
            prompt = random.integers(0, self._shape.vocab_size, cell.sequence_tokens).astype(np.int32)
            self._engine.submit(_request(id, prompt, cell.room_tokens))
        self._drafts.length, self._drafts.steps = 0, []
        while not self._drafts.steps:
            self._engine.step()
        return ids

    def _step_s(self, batch: int, length: int) -> Seconds:
        self._drafts.length, self._drafts.steps = length, []
        for _ in range(1 + REPEATS):
            self._engine.step()
        wrong = [(n, drafted) for n, drafted, _ in self._drafts.steps if (n, drafted) != (batch, batch * length)]
        if wrong:
            asked = f"{batch} requests with {batch * length} draft tokens"
            raise EngineError(f"calibration: a step of {asked} held {wrong[0][0]} with {wrong[0][1]}")
        return median(seconds for _, _, seconds in self._drafts.steps[1:])


def _request(id: RequestId, prompt: np.ndarray, max_tokens: int) -> ChunkRequest:
    return ChunkRequest(
        id=id,
        prompt=prompt,
        generated=np.zeros(0, np.int32),
        max_tokens=max_tokens,
        max_new_tokens=max_tokens,
        temperature=1.0,
    )
