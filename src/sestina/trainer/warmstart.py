"""Makes the model that `make quickstart` starts from, by supervised steps of the same trainer on worked solutions.

Two stages. `learn`: flawless solutions under a curriculum that admits longer problems as the model masters the shorter
ones. `slip`: solutions that sometimes go wrong, so that the model knows how to solve every problem yet often does not:
what reinforcement learning is to mend.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from sestina.data.sums import ALPHABET, SumsGenerator, solution
from sestina.models.shape import ModelShape
from sestina.models.tokenizer import Tokenizer, write_character_tokenizer
from sestina.models.weights import random_weights, write_model
from sestina.trainer import microbatch
from sestina.trainer.backend import open_backend
from sestina.trainer.config import OptimizerConfig, TrainerConfig
from sestina.trainer.groups import close_groups, open_groups
from sestina.trainer.microbatch import MicroBatch
from sestina.trainer.trainer import Metrics, Trainer, likelihood
from sestina.transport.messages import SampleBatch

UNSEEN = 10_000_000
"""Number of the first problem of the second stage, beyond those of the first."""


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


Progress = tuple[str, int, int, Metrics]
"""Stage, step, longest problem, metrics."""


def make(recipe: Recipe, directory: Path, store: dist.Store) -> Iterator[Progress]:
    """Train in this process, which becomes a trainer of one rank, and write model and tokenizer; yields every step."""
    write_character_tokenizer(directory, ALPHABET)
    tokenizer = Tokenizer(directory, model_vocab_size=recipe.vocab_size)
    learning = _config(recipe, recipe.optimizer(recipe.learning_rate, decay_steps=None))
    backend = open_backend("cpu", 0)
    open_groups(learning, backend, store, rank=0, seed=recipe.seed, limit_s=60)
    shape = recipe.shape()
    trainer = Trainer(learning, shape, backend, random_weights(shape, recipe.seed))
    yield from _learn(trainer, recipe, tokenizer)
    slipping = _config(recipe, recipe.optimizer(recipe.slip_learning_rate, decay_steps=recipe.slip_steps))
    trainer = Trainer(slipping, shape, backend, dict(trainer.export()))
    yield from _slip(trainer, recipe, tokenizer)
    write_model(directory, shape, trainer.export())
    close_groups()


def _learn(trainer: Trainer, recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Progress]:
    curriculum, rng = Curriculum(recipe), np.random.default_rng(recipe.seed)
    drawn = 0
    for step in range(recipe.learn_steps):
        batches, drawn = _batch(recipe, tokenizer, rng, drawn, max_terms=curriculum.max_terms, slip_rate=0.0)
        metrics = trainer.step(batches, likelihood, temperature=1.0)
        curriculum.learn(metrics, sum(len(batch.samples) for batch in batches))
        yield "learn", step, curriculum.max_terms, metrics


def _slip(trainer: Trainer, recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Progress]:
    rng = np.random.default_rng(recipe.seed + 1)
    drawn = UNSEEN
    for step in range(recipe.slip_steps):
        batches, drawn = _batch(recipe, tokenizer, rng, drawn, max_terms=recipe.max_terms, slip_rate=recipe.slip_rate)
        yield "slip", step, recipe.max_terms, trainer.step(batches, likelihood, temperature=1.0)


def _config(recipe: Recipe, optimizer: OptimizerConfig) -> TrainerConfig:
    return TrainerConfig(
        num_ranks=1,
        tensor_parallel=1,
        pipeline_parallel=1,
        sequence_parallel=False,
        distributed_optimizer=False,
        recompute="none",
        device="cpu",
        dtype="float32",
        max_micro_batch_tokens=2 * recipe.batch_tokens,
        max_logprob_diff=1.0,
        optimizer=optimizer,
    )


def _batch(
    recipe: Recipe, tokenizer: Tokenizer, rng: np.random.Generator, drawn: int, *, max_terms: int, slip_rate: float
) -> tuple[list[MicroBatch], int]:
    """Return one step's micro-batches, and the number of the next problem."""
    generator = SumsGenerator(seed=recipe.seed, max_terms=max_terms, tail=recipe.tail, held_out=False)
    prompts, answers, total = [], [], 0
    while total < recipe.batch_tokens:
        problem = generator.problem(drawn)
        text = solution(problem, rng, hurried_share=recipe.hurried_share, slip_rate=slip_rate)
        prompts.append(tokenizer.encode(problem.text))
        answers.append(np.append(tokenizer.encode(text), tokenizer.eos_id))
        total += len(prompts[-1]) + len(answers[-1])
        drawn += 1
    pairs = [np.concatenate(pair) for pair in zip(prompts, answers, strict=True)]
    batch = SampleBatch(
        groups=np.arange(len(pairs), dtype=np.int32),
        prompt_lengths=np.array([len(prompt) for prompt in prompts], np.int32),
        response_lengths=np.array([len(answer) for answer in answers], np.int32),
        tokens=np.concatenate(pairs).astype(np.int32),
        logprobs=np.zeros(sum(map(len, answers)), np.float32),
        rewards=np.zeros(len(pairs), np.float32),
    )
    zeros = np.zeros(len(pairs), np.float32)
    samples = microbatch.align(batch, zeros, np.ones(len(pairs), np.bool_))
    everything = list(range(len(pairs)))
    return (
        microbatch.micro_batches(
            samples,
            everything,
            budget=2 * recipe.batch_tokens,
            replicas=1,
            replica=0,
            loss_mean="token",
            pad_to=1,
            device=torch.device("cpu"),
        ),
        drawn,
    )
