"""Makes the model that `make quickstart` starts from, by supervised steps of the same trainer on worked solutions.

Two stages. `learn`: flawless solutions under a curriculum that admits longer problems as the model masters the shorter
ones. `slip`: solutions that sometimes go wrong, so that the model knows how to solve every problem yet often does not:
what reinforcement learning is to mend.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from sestina.data.sums import ALPHABET, SumsGenerator, solution
from sestina.models.tokenizer import Tokenizer, write_character_tokenizer
from sestina.models.weights import random_weights, write_model
from sestina.trainer import microbatch
from sestina.trainer.backend import open_backend
from sestina.trainer.groups import close_groups, open_groups
from sestina.trainer.microbatch import MicroBatch
from sestina.trainer.recipe import Curriculum, Recipe
from sestina.trainer.trainer import Metrics, Trainer, likelihood
from sestina.transport.messages import SampleBatch

UNSEEN = 10_000_000
"""Number of the first problem of the second stage, beyond those of the first."""


Progress = tuple[str, int, int, Metrics]
"""Stage, step, longest problem, metrics."""


def make(recipe: Recipe, directory: Path, store: dist.Store) -> Iterator[Progress]:
    """Train in this process, which becomes a trainer of one rank, and write model and tokenizer; yields every step."""
    write_character_tokenizer(directory, ALPHABET)
    tokenizer = Tokenizer(directory, model_vocab_size=recipe.vocab_size)
    learning = recipe.trainer(recipe.optimizer(recipe.learning_rate, decay_steps=None))
    backend = open_backend("cpu", 0)
    open_groups(learning, backend, store, rank=0, seed=recipe.seed, limit_s=60)
    shape = recipe.shape()
    trainer = Trainer(learning, shape, backend, random_weights(shape, recipe.seed))
    yield from _learn(trainer, recipe, tokenizer)
    slipping = recipe.trainer(recipe.optimizer(recipe.slip_learning_rate, decay_steps=recipe.slip_steps))
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
