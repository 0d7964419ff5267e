"""What is decoded for a certificate."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.core.units import TokenArray

OTHER_NOISE = 1 << 30
"""Added to the numbers of groups: the same prompts with other noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is decoded."""

    num_prompts: int = 16
    num_samples: int = 8


def requests_of(
    prompts: Sequence[TokenArray], effort: Effort, first: int, *, max_new_tokens: int, temperature: float
) -> list[ChunkRequest]:
    """Return requests for the first prompts, as groups that are numbered from `first`."""
    return [
        ChunkRequest(
            id=RequestId(first + group, sample),
            prompt=prompt,
            generated=np.zeros(0, np.int32),
            max_tokens=max_new_tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
        )
        for group, prompt in enumerate(prompts[: effort.num_prompts])
        for sample in range(effort.num_samples)
    ]
