"""What a user sets about a simulation of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sestina.core.ranges import Count, CountOrNone, NonNegative, Positive, Seed, Share, Text
from sestina.policies.planner import SchedulerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """A way for data."""

    bytes_s: Positive
    """Of one GPU, in one direction."""
    latency_s: NonNegative
    """Of one transfer, or of one collective operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConfig:
    """A kind of GPU, by what is reached of its peaks."""

    kind: Literal["gpu"]
    name: Text
    memory_gib: Positive
    memory_bytes_s: Positive
    """BW_eff"""
    flops: Positive
    """F_eff: operations per second of bfloat16 matrix products."""
    sequence_s: NonNegative
    """c_T: what a sequence adds to a step beside its arithmetic."""
    verify_sequence_s: NonNegative
    """c_V: the same, of a step that verifies drafts."""
    draft_token_s: NonNegative
    """c_D: looking up one draft token."""
    step_s: NonNegative
    """Constant part of a step."""
    train_share: Share
    """Part of `flops` that the trainer reaches."""
    prefill_tokens: Count
    """Most rows of prefill in one forward pass."""
    link: LinkConfig | None
    """Between GPUs of a node; null: there is none."""
    network: LinkConfig | None
    """Between nodes."""
    host: LinkConfig | None
    """Between a GPU and its node's memory."""
    disk: LinkConfig | None
    """Between a GPU and its node's disk."""
    measured: tuple[Text, ...]
    """Of these keys those that were fitted to measurements; results name all others that they rest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedConfig:
    """What launch/calibrate.py measured of the embedded engine."""

    kind: Literal["calibrated"]
    path: Path
    pace: Positive = 1.0
    """What steps take in a run, over what they took when they were measured, one engine alone: rollouts of a recorded
    run over those of its simulation."""


HardwareConfig: TypeAlias = GpuConfig | CalibratedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnConfig:
    """Lengths drawn from a distribution whose mean is `rollout.expected_tokens`."""

    kind: Literal["drawn"]
    between: NonNegative
    """Deviation of the logarithm of lengths between groups."""
    within: NonNegative
    """The same within a group."""
    drift: Positive
    """The mean of a step over that of the one before."""
    prompt_tokens: Count | None
    """Of every prompt; null: half of data.max_prompt_tokens."""
    epoch_steps: CountOrNone
    """Steps after which the same prompts come again, in the same order; 0: none ever does."""
    seen_before: bool
    """Whether the prompts have been through an epoch before the first step."""
    seed: Seed


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConfig:
    """Lengths of a recorded run."""

    kind: Literal["recorded"]
    path: Path
    """A run directory or a Parquet file (docs/traces.md)."""


WorkloadConfig: TypeAlias = DrawnConfig | RecordedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceConfig:
    """How many tokens a step with drafts yields."""

    draft_tokens: Count
    """Length of the drafts that it was measured with."""
    siblings: tuple[CountOrNone, ...]
    """Finished responses to the same prompt, rising from 0."""
    tokens_per_step: tuple[Positive, ...]
    """The mean from so many on, the draw itself included."""
    drafted_per_step: tuple[NonNegative, ...] = ()
    """Draft tokens of a step, the mean from so many on, where drafts end before their longest; none: they do not."""
    recording: Path | None = None
    """A recorded run with drafts of `draft_tokens`, whose responses yield here, chunk by chunk, what they did there, in
    place of the means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConfig:
    """What is real in a simulated world, and what its time is."""

    world: Literal["emulated", "simulated"]
    """emulated: real engines and tokens in one process, each instance under a clock of its own; simulated: neither
    engines nor tokens, and times from a cost model."""
    controller: Literal["measured", "free"]
    """measured: events wait for the controller, which takes the time that it really takes; free: it takes none."""
    trainer_shares: CountOrNone = 0
    """Trainer ranks that share out a batch and the time that it really takes one; 0: nothing is trained."""
    updates: Literal["interrupt", "drain"] = "interrupt"
    """What weights do to responses under way in asynchronous training: interrupt them as the run would, or wait."""
    train_s: NonNegative = 0.0
    """What a training step takes, and its weights to be published, in run.mode `pipelined`."""
    hardware: HardwareConfig | None = None
    """What the engines of a simulated world run on; what steps of an emulated world's take, if not what they do."""
    workload: WorkloadConfig | None = None
    acceptance: AcceptanceConfig | None = None
    reward_s: NonNegative = 0.0
    """What scoring a response takes, where nobody times it."""
    kv_reach: Literal["node", "cluster"] = "node"
    """From where a KV pool serves an instance."""
    compare: tuple[SchedulerKind, ...] = ()
    """Schedulers to simulate side by side; none: that of the run alone."""
    advise: bool = False
    """Search for the configuration that makes the most of `cluster.gpus`, instead of simulating the run."""
    advise_points: Count = 40
    """Most configurations that the search simulates."""
