"""What a user sets about what is recorded."""

from dataclasses import dataclass
from typing import Literal

from sestina.core.ranges import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """Weights & Biases; metrics.jsonl, journal and traces are always written."""

    wandb: Literal["off", "offline", "online"]
    wandb_project: Text
    wandb_group: str | None
    """Runs of one sweep share a group; null leaves it to W&B."""
