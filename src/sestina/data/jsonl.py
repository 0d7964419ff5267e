"""Prompt sets as JSON lines: `prompt` (text or chat messages), `label`, optional `id` and `meta`.

Other keys of a line are kept in `meta`. Blank lines are allowed; anything else that is not such an object is an error.
"""

import json
from pathlib import Path
from typing import Any, cast

from sestina.core.errors import DataError
from sestina.data.problems import collect
from sestina.data.prompt import Message, RawPrompt


def read_jsonl(path: Path) -> list[RawPrompt]:
    """Read a file; raises DataError naming every bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    return collect(path, ((n, line) for n, line in enumerate(lines, start=1) if line.strip()), _parse)


def _parse(line: str, where: str, number: int) -> RawPrompt:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected an object, found {type(record).__name__}")
    fields = cast("dict[str, Any]", record)
    missing = [key for key in ("prompt", "label") if key not in fields]
    if missing:
        raise ValueError(f"key '{missing[0]}' is missing; the line has {sorted(fields)}")
    meta = fields.pop("meta", {})
    if not isinstance(meta, dict):
        raise ValueError(f"'meta' must be an object, found {type(meta).__name__}")
    prompt, label, name = fields.pop("prompt"), fields.pop("label"), fields.pop("id", number)
    twice = sorted(fields.keys() & meta.keys())
    if twice:
        raise ValueError(f"key '{twice[0]}' stands both on the line and in 'meta'")
    return RawPrompt(id=str(name), prompt=check_prompt(prompt), label=label, meta={**fields, **meta}, where=where)


def check_prompt(prompt: Any) -> str | tuple[Message, ...]:  # noqa: ANN401 - whatever a file holds
    """Return a prompt that is non-empty text or chat messages; raises ValueError otherwise."""
    if isinstance(prompt, str):
        if not prompt:
            raise ValueError("'prompt' is empty")
        return prompt
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"'prompt' must be text or a list of messages, found {type(prompt).__name__}")
    messages = cast("list[Any]", prompt)
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("a message of 'prompt' has no 'role'")
        if not isinstance(message.get("content"), str):
            raise ValueError("a message of 'prompt' has no text 'content'")
    return tuple({"role": m["role"], "content": m["content"]} for m in messages)
