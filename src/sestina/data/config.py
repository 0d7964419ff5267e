"""What a user sets about prompts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Le

from sestina.core.ranges import Count, NonNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class SumsConfig:
    """The built-in task (data/sums.py)."""

    kind: Literal["sums"]
    num_prompts: Count
    """Size of the training set; an epoch."""
    num_eval_prompts: Count
    """Size of the held-out set."""
    max_terms: Annotated[int, Ge(2), Le(52)]
    tail: NonNegative
    """Exponent of the power law from which numbers of terms are drawn; 0 is uniform."""
    max_prompt_tokens: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """Prompts from files, JSONL or Parquet."""

    kind: Literal["files"]
    path: Path
    eval_path: Path | None
    """Held-out prompts; null for no evaluation."""
    max_prompt_tokens: Count


DataConfig: TypeAlias = SumsConfig | FilesConfig
