"""What a server that drafts is told: what holds for all by its environment, what is a chunk's own beside the chunk."""

from dataclasses import dataclass

import msgspec

from sestina.core.records import ChunkRequest
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.speculation.config import DraftConfig

ENVIRONMENT = "SESTINA_DRAFTS"
"""Variable that holds a server's `ServerDrafts`; without it, it decodes plainly."""

ALGORITHM = "SESTINA"
"""Name of the algorithm that sestina.sglang_plugin registers with SGLang."""

_MOST_TOKENS = 64
"""Of one draft, alternatives included; what the suffix index allows (sestina.drafting.index.MAX_DRAFT_TOKENS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDrafts:
    """How a server drafts."""

    config: DraftConfig
    max_context_tokens: int
    stop_token: int

    @property
    def most_tokens(self) -> int:
        """Most tokens of one draft, those of all its paths together."""
        return min(self.config.max_tokens * self.config.paths, _MOST_TOKENS)

    def room_tokens(self, engine: SGLangEngineConfig) -> int:
        """Return what drafts may hold of the KV cache, beside what chunks need.

        SGLang sets two steps' drafts aside for every running request, in whole pages.
        """
        pages = -(-2 * (self.most_tokens + 1) // engine.page_tokens) + 1
        return engine.max_running * pages * engine.page_tokens

    def to_environment(self) -> dict[str, str]:
        """Return the variable, for `from_environment`."""
        return {ENVIRONMENT: msgspec.json.encode(self).decode()}

    @classmethod
    def from_environment(cls, value: str) -> "ServerDrafts":
        """Read the variable's value."""
        return msgspec.json.decode(value, type=cls)


class Whose(msgspec.Struct, frozen=True):
    """Which response a chunk belongs to, where its prompt ends, how long it may become, and where it is to end."""

    group: int
    sample: int
    prompt_tokens: int
    max_new_tokens: int
    stop_at: int = 0
    """As in `ChunkRequest`."""


def whose(chunk: ChunkRequest) -> dict[str, int]:
    """Return a `Whose` as SGLang carries it: in `custom_params`."""
    return msgspec.structs.asdict(
        Whose(
            group=chunk.id.group,
            sample=chunk.id.sample,
            prompt_tokens=len(chunk.prompt),
            max_new_tokens=chunk.max_new_tokens,
            stop_at=chunk.stop_at,
        )
    )
