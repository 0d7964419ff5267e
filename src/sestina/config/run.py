"""The whole configuration of a run; every part is defined beside the code it configures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge

from sestina.algorithms.config import AlgorithmConfig
from sestina.config.cluster import ClusterConfig
from sestina.config.sim import SimConfig
from sestina.core.ranges import Count, CountOrNone, Duration, Positive, Seed, Text
from sestina.data.config import DataConfig
from sestina.models.config import ModelConfig
from sestina.replay.config import AsyncConfig
from sestina.rewards.config import RewardConfig
from sestina.rewards.environments.config import NO_ENVIRONMENT, EnvironmentConfig
from sestina.rollout.config import RolloutConfig
from sestina.rollout.speculation.config import DraftConfig
from sestina.telemetry.config import TelemetryConfig
from sestina.trainer.config import TrainerConfig
from sestina.weights.config import WeightsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How long a run is, and what it leaves behind."""

    mode: Literal["sync", "pipelined", "async"]
    """`async`: rollout goes on while the trainer works, as far as the section `async` lets it; `pipelined`: a step."""
    steps: Count
    checkpoint_every: CountOrNone
    """Steps between checkpoints; the last step always leaves one. 0: only the last."""
    keep_checkpoints: Count
    """Older ones are removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out prompts, one response each."""

    every: CountOrNone
    """Steps between evaluations; the first comes before training, the last after it. 0: none."""
    num_prompts: Count
    temperature: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinesConfig:
    """How long each kind of wait may take before the run ends with an error that names it."""

    start_s: Duration
    """Ranks to start, load the model and connect."""
    silence_s: Duration
    """A rollout rank, or the controller, without a sign of life."""
    train_s: Duration
    """The trainer on one batch."""
    checkpoint_s: Duration
    """The trainer saving or loading."""
    stop_s: Positive
    """Ranks to leave at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a run depends on."""

    name: Text
    seed: Seed
    dir: Path
    """Run directory; `resume: auto` continues what it holds."""
    resume: Literal["auto", "never"]
    run: LoopConfig
    async_: AsyncConfig
    data: DataConfig
    model: ModelConfig
    rollout: RolloutConfig
    draft: DraftConfig
    algorithm: AlgorithmConfig
    reward: RewardConfig
    trainer: TrainerConfig
    weights: WeightsConfig
    eval: EvalConfig
    deadlines: DeadlinesConfig
    telemetry: TelemetryConfig
    environment: EnvironmentConfig = NO_ENVIRONMENT
    """What answers between a model's turns."""
    cluster: ClusterConfig | None = None
    """Where a job's ranks go; None: all on the machine that starts them."""
    sim: SimConfig | None = None
    """What a simulation of the run is like; None: it is no simulation."""

    @property
    def overlaps(self) -> bool:
        """Whether a batch may hold what earlier steps have begun, and tokens of several versions."""
        return self.run.mode != "sync" or self.rollout.over_issue > 1
