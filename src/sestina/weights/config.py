"""What a user sets about weight updates."""

from dataclasses import dataclass

from sestina.core.ranges import Count, Duration, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    """How weights reach the rollout ranks."""

    host: Text | None
    """Address of the trainer's interface at which rollout ranks meet it; None: found where the trainer runs."""
    bucket_bytes: Count
    timeout_s: Duration
    """For joining the group, and for each bucket."""
