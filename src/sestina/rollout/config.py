"""What a user sets about rollout."""

from dataclasses import dataclass
from typing import Literal

from sestina.core.ranges import Count, Positive
from sestina.policies.planner import SchedulerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngineConfig:
    """Capacity and device of an embedded engine."""

    kind: Literal["torch"] = "torch"
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    kv_capacity_tokens: Count
    max_running: Count
    """Most chunks decoded together."""
    max_step_tokens: Count
    """Most rows in one forward pass; what decoding leaves of it goes to prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """Instances, scheduling and sampling."""

    num_instances: Count
    scheduler: SchedulerKind
    chunk_tokens: Count
    """Longest chunk; the `group` scheduler does not chunk."""
    max_new_tokens: Count
    """Longest response."""
    temperature: Positive
    engine: TorchEngineConfig
