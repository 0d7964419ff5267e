"""A batch to roll out: which prompts, how many responses to each, how they are drawn."""

from dataclasses import dataclass

from sestina.controller.recorded import RecordedLength
from sestina.controller.sample import Sample
from sestina.core.ids import GroupId, RequestId
from sestina.core.records import NO_TURN
from sestina.core.units import Seconds, Version
from sestina.data.prompt import Prompt
from sestina.policies.events import BatchOffered, Begun, GroupSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A batch to roll out."""

    step: int
    groups: tuple[tuple[GroupId, Prompt], ...]
    lengths: tuple[tuple[int, ...], ...]
    """Of each group's responses in a recorded run; empty where there is none."""
    forced: tuple[tuple[RecordedLength, ...], ...]
    """What each group's responses are held to; empty where their length is free."""
    num_samples: int
    max_new_tokens: int
    temperature: float
    turn_token: int = NO_TURN
    max_turns: int = 1
    """As in `Sample`."""
    histories: tuple[tuple[int, ...], ...] = ()
    """Lengths of what each group's prompt was answered in the last epoch; empty: of none."""
    beta: float = 1.0
    """As in `BatchOffered`, as are the following."""
    version: Version | None = None
    train_s: Seconds = 0.0

    def event(self, batch: int, begun: tuple[Begun, ...] = ()) -> BatchOffered:
        """Return what the planner is told of it."""
        return BatchOffered(
            batch=batch,
            groups=self.specs(),
            begun=begun,
            version=self.version,
            train_s=self.train_s,
            beta=self.beta,
        )

    def specs(self) -> tuple[GroupSpec, ...]:
        """Return the groups as the planner is told of them."""
        histories = self.histories or ((),) * len(self.groups)
        return tuple(
            GroupSpec(
                group=group,
                prompt_tokens=len(prompt.tokens),
                num_samples=self.num_samples,
                max_new_tokens=self.max_new_tokens,
                lengths=lengths,
                history=history,
            )
            for (group, prompt), lengths, history in zip(self.groups, self.lengths, histories, strict=True)
        )

    def samples(self, now: Seconds) -> list[Sample]:
        """Return its responses, ordered by (group, sample), none of them begun."""
        return [
            self._sample(RequestId(group, number), prompt, forced[number] if forced else None, now)
            for (group, prompt), forced in zip(self.groups, self.forced, strict=True)
            for number in range(self.num_samples)
        ]

    def _sample(self, id: RequestId, prompt: Prompt, forced: RecordedLength | None, now: Seconds) -> Sample:
        limit = self.max_new_tokens if forced is None or forced.stopped else forced.tokens
        return Sample(
            id=id,
            step=self.step,
            prompt=prompt,
            max_new_tokens=limit,
            # One that was cut short does not end before its limit, which is where it was cut.
            stop_at=0 if forced is None else forced.tokens + (not forced.stopped),
            temperature=self.temperature,
            turn_token=self.turn_token,
            max_turns=self.max_turns,
            offered_s=now,
            least_version=self.version,
        )
