"""Iterations in the shape of Seer's (arXiv 2511.14617v3, table 3), scaled down: lengths by 64, groups to what fits.

Kept are the ratio of longest to mean response and the responses of a group. The KV of an instance is what the baseline
preempts with as the paper's does, which preempts Qwen2-VL-72B's 9,600 responses 13,686 times in an iteration (section
2). Moonlight's preemptions are not published; its instance has as much more room for its responses as in `make
reproduce`, 14.3 to 12.7 %. How lengths spread between and within groups is not published either; both are lognormal
here, and alike within a group. Prompts are those of the built-in task, and its model decodes them past its own end of
sequence. With four groups to an instance instead of some forty, instances differ more than the paper's.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sestina.controller.offer import Offer
from sestina.controller.recorded import RecordedLength
from sestina.core.ids import GroupId
from sestina.core.noise import derive
from sestina.data.prompt import Prompt
from sestina.data.prompt_set import encode
from sestina.data.sums import SumsGenerator
from sestina.models.tokenizer import Tokenizer
from sestina.simulator.lengths import correlated_lengths

MODEL = Path("assets/sums")
PROMPT_TOKENS = 128
"""Longest prompt."""

WITHIN = 0.3
"""Deviation of the logarithm of lengths within a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One iteration on 16 instances."""

    name: str
    num_groups: int
    group_size: int
    mean_tokens: int
    max_tokens: int
    between: float
    """Deviation of the logarithm of lengths between groups."""
    kv_share: float
    """KV of an instance over all tokens of its responses."""
    chunk_tokens: int
    model: Path = MODEL
    """Whose vocabulary is that of the built-in one."""

    def kv_capacity_tokens(self, num_instances: int) -> int:
        """Return the KV of an instance, in whole pages; the longest response has room."""
        tokens = self.num_groups * self.group_size * self.mean_tokens / num_instances
        return max(self.max_tokens + PROMPT_TOKENS, int(self.kv_share * tokens) // 16 * 16)

    def lengths(self, seed: int) -> list[list[int]]:
        """Return tokens by group and sample."""
        return correlated_lengths(
            num_groups=self.num_groups,
            group_size=self.group_size,
            mean_tokens=self.mean_tokens,
            max_tokens=self.max_tokens,
            between=self.between,
            within=WITHIN,
            seed=seed,
        ).tolist()


QWEN2_VL = Workload(
    name="Qwen2-VL-72B",
    num_groups=64,
    group_size=16,
    mean_tokens=119,
    max_tokens=640,
    between=1.0,
    kv_share=0.165,
    chunk_tokens=128,
)
MOONLIGHT = Workload(
    name="Moonlight",
    num_groups=48,
    group_size=8,
    mean_tokens=350,
    max_tokens=1024,
    between=0.7,
    kv_share=0.186,
    chunk_tokens=128,
)


def evenly_bound(num_groups: int, num_instances: int, seed: int, of: int | None = None) -> list[GroupId]:
    """Return numbers of groups of which the `group` scheduler with this seed gives each instance as many.

    It draws instances at random, which with few groups would be what is measured; veRL deals prompts out evenly. With
    `of`, each so many groups in a row, a batch, are shared out evenly.
    """
    of = of or num_groups
    room = [-(-of // num_instances)] * num_instances
    numbers: list[GroupId] = []
    for number in itertools.count():
        bound = derive(seed, number) % num_instances
        if room[bound]:
            room[bound] -= 1
            numbers.append(number)
            if len(numbers) == num_groups:
                return numbers
            if len(numbers) % of == 0:
                room = [-(-of // num_instances)] * num_instances
    raise AssertionError("the count does not end")


def prompts(count: int, seed: int, tokenizer: Tokenizer) -> list[Prompt]:
    """Return prompts of the built-in task."""
    generator = SumsGenerator(seed=seed, max_terms=52, tail=1.1, held_out=False)
    return encode(generator.prompts(count), tokenizer, max_prompt_tokens=PROMPT_TOKENS)


def offer(
    workload: Workload, numbers: Sequence[GroupId], given: Sequence[Prompt], lengths: Sequence[Sequence[int]]
) -> Offer:
    """Return the iteration as one batch, every response held to its length."""
    forced = tuple(
        tuple(RecordedLength(len(prompt.tokens), tokens, stopped=True) for tokens in of_group)
        for prompt, of_group in zip(given, lengths, strict=True)
    )
    return Offer(
        step=1,
        groups=tuple(zip(numbers, given, strict=True)),
        lengths=tuple(map(tuple, lengths)),
        forced=forced,
        num_samples=workload.group_size,
        max_new_tokens=workload.max_tokens,
        temperature=1.0,
    )
