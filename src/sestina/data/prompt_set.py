"""A prompt set in memory: raw prompts, rendered, encoded and checked."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sestina.core.errors import DataError, ModelError
from sestina.data.jsonl import read_jsonl
from sestina.data.parquet import read_parquet
from sestina.data.problems import MAX_REPORTED
from sestina.data.prompt import Prompt, RawPrompt
from sestina.models.tokenizer import Tokenizer


def read_file(path: Path) -> list[RawPrompt]:
    """Read a prompt file by its suffix; raises DataError for an unknown one and for what the reader finds."""
    match path.suffix:
        case ".jsonl":
            return read_jsonl(path)
        case ".parquet":
            return read_parquet(path)
        case suffix:
            raise DataError(f"{path}: suffix '{suffix}' is not one of '.jsonl', '.parquet'")


def encode(raw: Sequence[RawPrompt], tokenizer: Tokenizer, *, max_prompt_tokens: int) -> list[Prompt]:
    """Return ready prompts; raises DataError naming every one that is empty, unknown to the tokenizer or too long."""
    prompts: list[Prompt] = []
    problems: list[str] = []
    for item in raw:
        try:
            prompt = _encode_one(item, tokenizer)
        except ModelError as error:
            problems.append(f"{item.where}: {error}")
            continue
        if not 0 < len(prompt.tokens) <= max_prompt_tokens:
            problems.append(
                f"{item.where}: prompt '{item.id}' has {len(prompt.tokens)} tokens; "
                f"data.max_prompt_tokens allows 1 to {max_prompt_tokens}"
            )
        prompts.append(prompt)
    if problems:
        more = len(problems) - MAX_REPORTED
        raise DataError("\n".join(problems[:MAX_REPORTED] + ([f"and {more} more bad prompts"] if more > 0 else [])))
    return prompts


def digest(prompts: Sequence[Prompt]) -> str:
    """Return a short hash of everything that a rollout and its reward see of the prompts, in their order."""
    found = hashlib.sha256()
    for prompt in prompts:
        found.update(repr((prompt.id, prompt.text, prompt.label, sorted(prompt.meta.items()))).encode())
        found.update(prompt.tokens.tobytes())
    return found.hexdigest()[:16]


def _encode_one(item: RawPrompt, tokenizer: Tokenizer) -> Prompt:
    text = item.prompt if isinstance(item.prompt, str) else tokenizer.render(item.prompt)
    return Prompt(id=item.id, text=text, tokens=tokenizer.encode(text), label=item.label, meta=item.meta)
