"""What the trainer ranks are made from; known without torch."""

from dataclasses import dataclass
from pathlib import Path

from sestina.algorithms.config import AlgorithmConfig
from sestina.core.units import Seconds
from sestina.models.shape import ModelShape
from sestina.trainer.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """What the trainer ranks are made from."""

    trainer: TrainerConfig
    algorithm: AlgorithmConfig
    max_new_tokens: int
    """Longest response."""
    model: Path
    shape: ModelShape
    seed: int
    bucket_bytes: int
    weights_timeout_s: Seconds
    start_s: Seconds
    train_s: Seconds
    checkpoint_s: Seconds

    @property
    def longest_order_s(self) -> Seconds:
        """Time that the slowest order may take."""
        return max(self.start_s, self.train_s, self.checkpoint_s, 2 * self.weights_timeout_s)
