"""What a run works with: model, tokenizer and prompts, and the prompts' part of reading them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from sestina.config.run import RunConfig
from sestina.controller.recorded import RecordedLengths
from sestina.core.errors import AbsentError, ConfigError
from sestina.core.records import NO_TURN
from sestina.data.config import DataConfig, FilesConfig, SumsConfig
from sestina.data.prompt import Prompt, RawPrompt
from sestina.data.prompt_set import encode, read_file
from sestina.data.sums import SumsGenerator
from sestina.models.shape import ModelShape
from sestina.models.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What a run works with."""

    shape: ModelShape
    tokenizer: Tokenizer
    prompts: list[Prompt]
    eval_prompts: list[Prompt]
    """Empty when the run does not evaluate."""
    lengths: RecordedLengths
    """What the `oracle` scheduler orders by."""
    forced: RecordedLengths
    """What responses are held to."""
    known_lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Of what prompts were answered in an earlier run."""
    turn_token: int = NO_TURN
    """Ends a model's turn; none where there is no environment."""


def raw_prompts(config: DataConfig, seed: int) -> tuple[list[RawPrompt], list[RawPrompt]]:
    """Return training and held-out prompts; raises AbsentError for a missing file, DataError for a bad one."""
    match config:
        case SumsConfig():

            def draw(count: int, *, held_out: bool) -> list[RawPrompt]:
                generator = SumsGenerator(seed=seed, max_terms=config.max_terms, tail=config.tail, held_out=held_out)
                return generator.prompts(count)

            return draw(config.num_prompts, held_out=False), draw(config.num_eval_prompts, held_out=True)
        case FilesConfig():
            _prompts_are_here(config)
            held_out = [] if config.eval_path is None else read_file(config.eval_path)
            return read_file(config.path), held_out
        case _:
            assert_never(config)


def encoded(
    config: RunConfig, train: list[RawPrompt], held_out: list[RawPrompt], tokenizer: Tokenizer
) -> tuple[list[Prompt], list[Prompt]]:
    """Return both sets as tokens; raises ConfigError or DataError for too few or too long ones."""
    limit = config.data.max_prompt_tokens
    prompts = encode(train, tokenizer, max_prompt_tokens=limit)
    wanted = config.eval.num_prompts if config.eval.every else 0
    eval_prompts = encode(held_out[:wanted], tokenizer, max_prompt_tokens=limit)
    _check_counts(config, len(prompts), len(eval_prompts))
    return prompts, eval_prompts


def _prompts_are_here(config: FilesConfig) -> None:
    files = {"data.path": config.path, "data.eval_path": config.eval_path}
    gone = [f"{key}: {path}: no such file" for key, path in files.items() if path is not None and not path.exists()]
    if gone:
        raise AbsentError(gone)


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
