"""What a user sets about rollout."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Lt

from sestina.core.ranges import Count, CountOrNone, Duration, Positive
from sestina.kvpool.config import KvPoolConfig
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
    data_parallel: Count
    """Groups of those GPUs that attend to requests of their own; the rest of the model stays shared out over all."""
    expert_parallel: Count
    """Groups of those GPUs that share out a layer's experts."""
    memory_fraction: Annotated[float, Gt(0), Lt(1)]
    """Share of a GPU's memory for weights and keys and values; CUDA only."""
    kv_capacity_tokens: CountOrNone
    """0: as much as the GPU's memory holds."""
    max_running: Count
    """Most requests decoded together."""
    page_tokens: Count
    deterministic: bool
    """SGLang's kernels whose sums do not depend on the batch; CUDA only, and slower."""
    weights: Literal["broadcast", "disk"]
    """How the server gets them. One that does not take a broadcast is started again and gets them by disk."""
    bucket_bytes: Count
    """Weights broadcast to the server at once."""
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
    """Directory of a recorded run, or a Parquet file, by whose response lengths the `oracle` scheduler orders."""
    forced_lengths_from: Path | None
    """The same, to whose lengths responses are held: no end of sequence before, and it there."""
    ranking_groups: Count
    """Groups of prompts, short to long, that `histopipe` gives instances of their own; fewer where there are fewer."""
    history_from: Path | None
    """Directory of a recorded run, or a Parquet file, whose lengths `histopipe` ranks the first epoch by."""
    max_new_tokens: Count
    """Longest response."""
    temperature: Positive
    engine: EngineConfig
    kv_pool: KvPoolConfig
    over_issue: Annotated[float, Ge(1)] = 1.0
    """Groups begun for a batch, over those it has; when it has ended, the others stop. 1: no others."""
    stopped: Literal["carry", "drop"] = "carry"
    """What becomes of groups that stop: they go on in the next step from the tokens they have, or are lost."""
    expected_tokens: Count | None = None
    """Mean length of a response that plans and simulations assume; None: a quarter of the longest."""
