"""What a rollout planner is told (events) and what it answers (commands).

One batch is offered, its groups become requests, requests run as chunks, finished samples are rewarded, and the batch
is released to the trainer once every sample has its reward. A request whose turn has ended is held back until an
environment has answered it.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sestina.core.ids import GroupId, RequestId
from sestina.core.units import InstanceId, Seconds, Version

PlacementReason: TypeAlias = Literal[
    "bound", "least-loaded", "probe", "longest-first", "least-served", "oracle", "ranked", "intra-step", "inter-step"
]
"""By which rule a chunk was next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One prompt and how many responses it needs."""

    group: GroupId
    prompt_tokens: int
    num_samples: int
    max_new_tokens: int
    lengths: tuple[int, ...] = ()
    """Response tokens of each sample in a recorded run; empty when there is none."""
    history: tuple[int, ...] = ()
    """Response tokens of the prompt's answers in the last epoch; empty when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceUp:
    """A rollout instance is ready."""

    instance: InstanceId
    kv_capacity_tokens: int
    page_tokens: int
    """KV is reserved in pages of this many tokens."""
    max_running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KvReport:
    """What an instance itself says of its keys and values."""

    peak_tokens: int
    """All that it holds and that the chunks it was given can still come to need; what several share counts once."""
    capacity_tokens: int
    on_the_way: tuple[RequestId, ...] = ()
    """Chunks that had been dispatched to it and that it had not been given yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvReported:
    """An instance has said what its keys and values come to, while its chunks run."""

    instance: InstanceId
    kv: KvReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """How far a request had come when the run was interrupted."""

    request: RequestId
    generated_tokens: int
    done: bool
    """The response is complete."""
    rewarded: bool
    paused: bool = False
    """Its turn has ended, and nothing has been observed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffered:
    """The groups of one batch may start."""

    batch: int
    groups: tuple[GroupSpec, ...]
    begun: tuple[Begun, ...] = ()
    """Requests that go on from where an earlier start of the run has left them; all others start from nothing."""
    version: Version | None = None
    """Weights that instances load, if they have older ones, before they begin with it; None: no matter."""
    train_s: Seconds = 0.0
    """What the last training step took."""
    beta: float = 1.0
    """Growth over the last epoch beyond which a response is an outlier (RhymeRL, section 5.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkFinished:
    """A dispatched chunk ended."""

    request: RequestId
    instance: InstanceId
    produced_tokens: int
    done: bool
    """The response is complete: end of sequence, or at its limit."""
    kv: KvReport | None = None
    """Of its instance, once the chunk had ended; None: it has said nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A dispatched chunk ended, and the response goes on with what an environment answers."""

    request: RequestId
    instance: InstanceId
    produced_tokens: int
    kv: KvReport | None = None
    """As of `ChunkFinished`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An environment has answered a request whose turn had ended, or has failed to."""

    request: RequestId
    observed_tokens: int
    """Added to the response."""
    done: bool
    """The response is complete: it has no room to go on, or nothing to go on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRewarded:
    """A finished sample has its reward, or has failed to get one."""

    request: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Run one chunk of a request on an instance."""

    request: RequestId
    instance: InstanceId
    max_tokens: int
    reason: PlacementReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Observe:
    """Ask the environment what follows in a response whose turn has ended."""

    request: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Send a finished sample to the reward workers."""

    request: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBatch:
    """Every sample of the batch is finished and rewarded."""

    batch: int


Event: TypeAlias = InstanceUp | KvReported | BatchOffered | ChunkFinished | TurnEnded | Observed | SampleRewarded
Command: TypeAlias = Dispatch | Observe | Reward | ReleaseBatch
