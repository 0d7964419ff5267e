"""What the warm start does: its recipe, and the curriculum of its first stage."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass

from sestina.models.shape import ModelShape
from sestina.trainer.config import OptimizerConfig, TrainerConfig
from sestina.trainer.trainer import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything the result depends on, beside the code."""

    seed: int = 1
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 8
    head_size: int = 16
    ffn_size: int = 128
    vocab_size: int = 80
    max_positions: int = 1024
    max_terms: int = 52
    tail: float = 1.1
    hurried_share: float = 0.3
    slip_rate: float = 0.12
    batch_tokens: int = 4000
    learning_rate: float = 2e-3
    slip_learning_rate: float = 1e-3
    learn_steps: int = 1300
    slip_steps: int = 300
    mastered: float = 0.12
    """Nats per token, above what the choice of style makes unavoidable, below which the curriculum goes on."""
    patience_steps: int = 8
    """Least steps between two stages of the curriculum."""

    def shape(self) -> ModelShape:
        """Return the architecture."""
        return ModelShape(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=1,
            head_size=self.head_size,
            ffn_size=self.ffn_size,
            max_positions=self.max_positions,
            rope_theta=10000.0,
            norm_eps=1e-6,
            tied=True,
        )

    def fingerprint(self) -> str:
        """Return the hash that names the result."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def trainer(self, optimizer: OptimizerConfig) -> TrainerConfig:
        """Return one rank on the CPU."""
        return TrainerConfig(
            num_ranks=1,
            tensor_parallel=1,
            pipeline_parallel=1,
            sequence_parallel=False,
            expert_parallel=1,
            expert_tensor_parallel=1,
            distributed_optimizer=False,
            recompute="none",
            device="cpu",
            dtype="float32",
            max_micro_batch_tokens=2 * self.batch_tokens,
            max_logprob_diff=1.0,
            optimizer=optimizer,
        )

    def optimizer(self, learning_rate: float, *, decay_steps: int | None) -> OptimizerConfig:
        """Return AdamW for one stage, its rate constant or falling to zero."""
        return OptimizerConfig(
            learning_rate=learning_rate,
            min_learning_rate=0.0,
            warmup_steps=30,
            decay="constant" if decay_steps is None else "linear",
            decay_steps=decay_steps or 1,
            weight_decay=0.05,
            beta1=0.9,
            beta2=0.98,
            eps=1e-8,
            clip_grad=1.0,
        )


class Curriculum:
    """The longest problem admitted; grows by a fifth whenever the model has mastered what it gets."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._since = 0
        self._excess = 0.0
        share = recipe.hurried_share
        self._style_nats = -share * math.log(share) - (1 - share) * math.log(1 - share)
        self.max_terms = 3

    @property
    def complete(self) -> bool:
        """Every problem is admitted."""
        return self.max_terms == self._recipe.max_terms

    def learn(self, metrics: Metrics, num_solutions: int) -> None:
        """Absorb one step."""
        self._since += 1
        excess = metrics["nll"] - self._style_nats * num_solutions / metrics["response_tokens"]
        self._excess += (excess - self._excess) * (1.0 if self._since == 1 else 0.3)
        if self._excess < self._recipe.mastered and self._since >= self._recipe.patience_steps:
            self.max_terms = min(self._recipe.max_terms, int(1.2 * self.max_terms) + 1)
            self._since = 0
