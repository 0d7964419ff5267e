"""Every message of the control plane. Weights do not travel here (see sestina.weights), tokens do.

Rank 0 is the controller. It talks to each rollout rank and to the first trainer rank, which passes on to the others.
"""

from typing import Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from sestina.core.ids import GroupId, RequestId
from sestina.core.records import ChunkRequest, ChunkResult, EngineLoad, KvUse
from sestina.core.tally import DraftTally
from sestina.core.units import InstanceId, LogprobArray, Seconds, TokenArray, Version

Role: TypeAlias = Literal["controller", "rollout", "trainer"]
IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]


class _Base(msgspec.Struct, frozen=True, tag=True): ...


# Any rank to the controller


class Hello(_Base, frozen=True):
    """First word of every rank."""

    role: Role
    index: int
    """Number of this rank within its role."""
    host: str
    pid: int


class Heartbeat(_Base, frozen=True):
    """The rank is alive and doing `phase`."""

    phase: str


# Controller to any rank


class Ping(_Base, frozen=True):
    """The controller is alive; nothing to do."""


class Stop(_Base, frozen=True):
    """Leave: the run is over."""


class Bye(_Base, frozen=True):
    """Answers Stop: nothing more will come from this rank."""


# Rollout


class InstanceReady(_Base, frozen=True):
    """The engine is built and waits for weights."""

    instance: InstanceId
    kv_capacity_tokens: int
    page_tokens: int
    max_running: int
    batch_invariant: bool
    """Whether this machine's matrix products give a row the same bits in any batch (checked, not assumed)."""
    drafter: str = ""
    """How the engine's drafting model multiplies; empty without one."""


class StartChunk(_Base, frozen=True):
    """Run one chunk."""

    chunk: ChunkRequest
    version: Version | None = None
    """Load these weights from the buffer first, if older ones are loaded; None: no matter."""


class GroupHistory(_Base, frozen=True):
    """What a group's prompt was answered in the last epoch: drafts may be made of it."""

    group: GroupId
    prompt: TokenArray
    """[prompt tokens]"""
    record: bytes
    """As `drafting.history.answers` makes it."""


class AbortChunks(_Base, frozen=True):
    """End these chunks at once: each comes back with what it has produced."""

    ids: tuple[RequestId, ...]


class UpcomingChunks(_Base, frozen=True):
    """These requests are next in the queue; `near` are those of them that ran on this instance last."""

    ids: tuple[RequestId, ...]
    near: tuple[RequestId, ...]


class ChunkEnded(_Base, frozen=True):
    """A chunk ended; `clock_s` is the instance's monotonic time when this was sent, to align its times with others'."""

    instance: InstanceId
    result: ChunkResult
    clock_s: Seconds
    kv: KvUse
    """Of the instance's chunks once this one had ended."""


class DraftReport(_Base, frozen=True):
    """What came of drafts since the last weights, sent before the next are loaded."""

    instance: InstanceId
    tally: DraftTally


class LoadReport(_Base, frozen=True):
    """How busy an instance is, sent with its heartbeats."""

    instance: InstanceId
    load: EngineLoad
    drafting: dict[str, int] = {}
    """Counts since the start, by name; what the `spec/` metrics add up."""


class DraftServers(_Base, frozen=True):
    """Rollout: exchange drafts through these servers from here on."""

    addresses: tuple[str, ...]
    """Of each server, in an order that all ranks share; empty where there is none."""
    keys: str
    """Folder of the run's keys."""


# Weights


class TensorEntry(_Base, frozen=True):
    """One tensor of every weight update."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class WeightLayout(_Base, frozen=True):
    """What every update of a run consists of: tensors in order, packed into buckets of about `bucket_bytes`."""

    tensors: tuple[TensorEntry, ...]
    bucket_bytes: int


class JoinWeights(_Base, frozen=True):
    """Rollout: connect to the weight-update group, whose rendezvous is at this address."""

    host: str
    port: int
    rank: int
    world_size: int
    layout: WeightLayout


class WeightsJoined(_Base, frozen=True):
    """This rank is in the weight-update group."""


class PublishWeights(_Base, frozen=True):
    """Trainer: broadcast the current weights as this version."""

    version: Version


class ReceiveWeights(_Base, frozen=True):
    """Rollout: take part in the broadcast of this version, verify it, load it."""

    version: Version
    load: bool = True
    """False: chunks go on meanwhile, and the version is kept until one asks for it."""


class LoadWeights(_Base, frozen=True):
    """Rollout: read a model from the disk as this version, in the type that the trainer has its weights in."""

    version: Version
    directory: str
    dtype: str


class WeightsLoaded(_Base, frozen=True):
    """Rollout or trainer: the update is complete on this rank."""

    version: Version
    seconds: Seconds
    num_bytes: int


# Trainer


class SampleBatch(_Base, frozen=True):
    """The samples of one training batch, ordered by (group, sample): N samples, T tokens of prompts and responses.

    Arrays are concatenated over samples (CSR without the leading zero): a sample's tokens are its prompt, then its
    response.
    """

    groups: IntArray
    """[N] index of the sample's group within the batch"""
    prompt_lengths: IntArray
    """[N]"""
    response_lengths: IntArray
    """[N]"""
    tokens: TokenArray
    """[T]"""
    logprobs: LogprobArray
    """[sum of response lengths] as the rollout drew them"""
    rewards: FloatArray
    """[N]; NaN where the reward failed, which keeps the sample out of the loss"""
    versions: IntArray | None = None
    """[sum of response lengths] weights that drew each; None: those that the batch is trained on"""
    kept_kv: BoolArray | None = None
    """[sum of response lengths] whether over keys and values of older weights; None: nowhere"""
    drawn: BoolArray | None = None
    """[sum of response lengths] whether the model drew each; the others, which an environment answered, are not trained
    on; None: all"""

    @property
    def drawn_lengths(self) -> IntArray:
        """[N] tokens of each response that the model drew."""
        if self.drawn is None:
            return self.response_lengths
        sample = np.repeat(np.arange(len(self.response_lengths)), self.response_lengths)
        return np.bincount(sample[self.drawn], minlength=len(self.response_lengths)).astype(np.int32)


class TrainBatch(_Base, frozen=True):
    """Trainer: take the optimizer steps of one batch."""

    step: int
    temperature: float
    """Sampling temperature of the rollout: logprobs are compared at it."""
    batch: SampleBatch


class TrainDone(_Base, frozen=True):
    """Trainer: the batch is trained on."""

    step: int
    metrics: dict[str, float]


class BuildTrainer(_Base, frozen=True):
    """Trainer: load Megatron, build the model, open the rendezvous."""


class TrainerReady(_Base, frozen=True):
    """The model is built, its weights are loaded, and the weight-update group can be joined at this address."""

    host: str
    port: int
    layout: WeightLayout
    num_buckets: int


class SaveCheckpoint(_Base, frozen=True):
    """Trainer: write model, optimizer and schedule below this directory, and the model for others into `model`."""

    directory: str


class LoadCheckpoint(_Base, frozen=True):
    """Trainer: continue from this directory."""

    directory: str


class CheckpointDone(_Base, frozen=True):
    """Trainer: saved or loaded."""

    directory: str
    version: Version
    seconds: Seconds


Message: TypeAlias = (
    Hello
    | Heartbeat
    | Ping
    | Stop
    | Bye
    | InstanceReady
    | StartChunk
    | GroupHistory
    | AbortChunks
    | UpcomingChunks
    | ChunkEnded
    | DraftReport
    | LoadReport
    | DraftServers
    | JoinWeights
    | WeightsJoined
    | PublishWeights
    | ReceiveWeights
    | LoadWeights
    | WeightsLoaded
    | TrainBatch
    | TrainDone
    | BuildTrainer
    | TrainerReady
    | SaveCheckpoint
    | LoadCheckpoint
    | CheckpointDone
)
