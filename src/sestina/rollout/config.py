"""What a user sets about rollout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, CountOrNone, Duration, Positive
from sestina.policies.planner import SchedulerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchEngineConfig:
    """Capacity and device of an embedded engine."""

    kind: Literal["torch"]
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    kv_capacity_tokens: Count
    max_running: Count
    """Most chunks decoded together."""
    max_step_tokens: Count
    """Most rows in one forward pass; what decoding leaves of it goes to prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SGLangEngineConfig:
    """One SGLang server per instance, started by the rollout rank."""

    kind: Literal["sglang"]
    python: Path
    """Interpreter of the environment that SGLang is installed in."""
    device: Literal["cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    tensor_parallel: Count
    """GPUs of one instance."""
    kv_capacity_tokens: CountOrNone
    """0: as much as the GPU's memory holds."""
    max_running: Count
    """Most requests decoded together."""
    page_tokens: Count
    deterministic: bool
    """SGLang's kernels whose sums do not depend on the batch; CUDA only, and slower."""
    bucket_bytes: Count
    """Weights handed to the server at once."""
    start_s: Duration
    """A server to be ready."""
    silence_s: Duration
    """A server without an answer, before it is started again."""
    max_restarts: CountOrNone
    """Of one instance, before the run ends."""
    extra_args: tuple[str, ...] = ()
    """Further arguments of SGLang's command line."""


EngineConfig: TypeAlias = TorchEngineConfig | SGLangEngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """Instances, scheduling and sampling."""

    num_instances: Count
    scheduler: SchedulerKind
    chunk_tokens: Count
    """Longest chunk; the `group` scheduler does not chunk."""
    affinity_requests: CountOrNone
    """A chunk returns to its request's last instance while no two differ by more running requests; 0: never."""
    lengths_from: Path | None
    """Directory of a recorded run, by whose response lengths the `oracle` scheduler orders."""
    max_new_tokens: Count
    """Longest response."""
    temperature: Positive
    engine: EngineConfig
