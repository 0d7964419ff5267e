"""A batch to roll out: which prompts, how many responses to each, how they are drawn."""

from dataclasses import dataclass

from sestina.controller.sample import Sample
from sestina.core.ids import GroupId, RequestId
from sestina.core.units import Seconds
from sestina.data.prompt import Prompt
from sestina.policies.events import GroupSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A batch to roll out."""

    step: int
    groups: tuple[tuple[GroupId, Prompt], ...]
    lengths: tuple[tuple[int, ...], ...]
    """Of each group's responses in a recorded run; empty where there is none."""
    num_samples: int
    max_new_tokens: int
    temperature: float

    def specs(self) -> tuple[GroupSpec, ...]:
        """Return the groups as the planner is told of them."""
        return tuple(
            GroupSpec(
                group=group,
                prompt_tokens=len(prompt.tokens),
                num_samples=self.num_samples,
                max_new_tokens=self.max_new_tokens,
                lengths=lengths,
            )
            for (group, prompt), lengths in zip(self.groups, self.lengths, strict=True)
        )

    def samples(self, now: Seconds) -> list[Sample]:
        """Return its responses, ordered by (group, sample), none of them begun."""
        return [
            Sample(
                id=RequestId(group, number),
                step=self.step,
                prompt=prompt,
                max_new_tokens=self.max_new_tokens,
                temperature=self.temperature,
                offered_s=now,
            )
            for group, prompt in self.groups
            for number in range(self.num_samples)
        ]
