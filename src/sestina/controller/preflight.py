"""Everything that can be known to be wrong before a rank starts: model, tokenizer, prompts, reward, layout."""

import os
from dataclasses import dataclass
from typing import assert_never

from sestina.config.run import RunConfig
from sestina.controller.recorded import RecordedLengths, recorded_lengths
from sestina.core.errors import ConfigError
from sestina.data.config import DataConfig, FilesConfig, SumsConfig
from sestina.data.prompt import Prompt, RawPrompt
from sestina.data.prompt_set import encode, read_file
from sestina.data.sums import SumsGenerator
from sestina.models.files import check_files
from sestina.models.shape import ModelShape, read_shape
from sestina.models.tokenizer import Tokenizer
from sestina.rewards.rules import check as check_reward
from sestina.rollout.config import EngineConfig, SGLangEngineConfig
from sestina.trainer.layout import check_layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What a run works with."""

    shape: ModelShape
    tokenizer: Tokenizer
    prompts: list[Prompt]
    eval_prompts: list[Prompt]
    """Empty when the run does not evaluate."""
    lengths: RecordedLengths


def prepare(config: RunConfig) -> Materials:
    """Read and check what the configuration names; raises the UserError of whatever is wrong first. Writes nothing."""
    shape = read_shape(config.model.path)
    check_files(config.model.path, shape)
    check_layout(shape, config.trainer)
    check_reward(config.reward)
    _check_engine(config.rollout.engine)
    _check_context(config, shape)
    tokenizer = Tokenizer(config.model.path, model_vocab_size=shape.vocab_size)
    train, held_out = _raw_prompts(config.data, config.seed)
    limit = config.data.max_prompt_tokens
    prompts = encode(train, tokenizer, max_prompt_tokens=limit)
    wanted = config.eval.num_prompts if config.eval.every else 0
    eval_prompts = encode(held_out[:wanted], tokenizer, max_prompt_tokens=limit)
    _check_counts(config, len(prompts), len(eval_prompts))
    return Materials(
        shape=shape,
        tokenizer=tokenizer,
        prompts=prompts,
        eval_prompts=eval_prompts,
        lengths=recorded_lengths(config),
    )


def _raw_prompts(config: DataConfig, seed: int) -> tuple[list[RawPrompt], list[RawPrompt]]:
    match config:
        case SumsConfig():

            def draw(count: int, *, held_out: bool) -> list[RawPrompt]:
                generator = SumsGenerator(seed=seed, max_terms=config.max_terms, tail=config.tail, held_out=held_out)
                return generator.prompts(count)

            return draw(config.num_prompts, held_out=False), draw(config.num_eval_prompts, held_out=True)
        case FilesConfig():
            held_out = [] if config.eval_path is None else read_file(config.eval_path)
            return read_file(config.path), held_out
        case _:
            assert_never(config)


def _check_engine(engine: EngineConfig) -> None:
    if isinstance(engine, SGLangEngineConfig) and not os.access(engine.python, os.X_OK):
        raise ConfigError([
            f"rollout.engine.python: '{engine.python}' is not an executable file; `make sglang` sets up "
            "'.venv-sglang/bin/python' for the CPU, docs/install-gpu.md says how for GPUs"
        ])  # fmt: skip


def _check_context(config: RunConfig, shape: ModelShape) -> None:
    needed = config.data.max_prompt_tokens + config.rollout.max_new_tokens
    if needed > shape.max_positions:
        raise ConfigError([
            f"rollout.max_new_tokens: {config.rollout.max_new_tokens} is not allowed with data.max_prompt_tokens "
            f"{config.data.max_prompt_tokens}; the model has {shape.max_positions} positions"
        ])  # fmt: skip


def _check_counts(config: RunConfig, num_prompts: int, num_eval_prompts: int) -> None:
    needed = config.algorithm.batch_size // config.algorithm.group_size
    wrong: list[str] = []
    if num_prompts < needed:
        wrong.append(f"algorithm.batch_size: one step needs {needed} prompts, the prompt set holds {num_prompts}")
    if config.eval.every and num_eval_prompts < config.eval.num_prompts:
        wrong.append(
            f"eval.num_prompts: {config.eval.num_prompts} asked for, the held-out set holds {num_eval_prompts}"
        )
    if wrong:
        raise ConfigError(wrong)
