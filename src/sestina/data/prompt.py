"""One prompt of a data set, before it has been drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sestina.core.units import TokenArray

Message = Mapping[str, str]
"""One turn of a chat: `role` and `content`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPrompt:
    """A prompt as a file states it."""

    id: str
    prompt: str | tuple[Message, ...]
    """Plain text, or the messages of a chat."""
    label: Any
    """What the reward compares with; any JSON value."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    where: str
    """File and line, for error messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt ready for rollout."""

    id: str
    text: str
    """What the model reads, chat template applied."""
    tokens: TokenArray
    """[prompt tokens]"""
    label: Any
    meta: Mapping[str, Any]
