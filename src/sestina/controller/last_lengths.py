"""How long the answers to each prompt were when it was last rolled out: what `histopipe` ranks by."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from sestina.config.run import RunConfig
from sestina.controller.ledger import Drawn
from sestina.core.errors import DataError
from sestina.data.prompt import Prompt
from sestina.policies.histopipe.migration import growth_bound
from sestina.telemetry.lengths import read_answers


class Answering(Drawn, Protocol):
    """A response to a prompt that comes again."""

    @property
    def prompt_id(self) -> str:
        """By which the prompt is known again."""
        ...


class LastLengths:
    """Lengths by prompt, and how much they have grown."""

    def __init__(self, known: Mapping[str, tuple[int, ...]]) -> None:
        """`known`: from an earlier run."""
        self._lengths = dict(known)
        self._growth: dict[str, float] = {}
        """Of prompts that were rolled out twice: last over previous mean."""

    def __len__(self) -> int:
        return len(self._lengths)

    def record(self, samples: Sequence[Answering]) -> None:
        """Take in a batch, ordered by group."""
        for _, group in groupby(samples, key=lambda sample: sample.id.group):
            answers = list(group)
            prompt, lengths = answers[0].prompt_id, tuple(sample.num_tokens for sample in answers)
            if before := self._lengths.get(prompt):
                self._growth[prompt] = (sum(lengths) / len(lengths)) / max(1.0, sum(before) / len(before))
            self._lengths[prompt] = lengths

    def of(self, prompt_ids: Iterable[str]) -> tuple[tuple[int, ...], ...]:
        """Return the lengths of each; none for a prompt that has not been rolled out."""
        return tuple(self._lengths.get(prompt, ()) for prompt in prompt_ids)

    @property
    def beta(self) -> float:
        """Growth beyond which a response is an outlier."""
        return growth_bound(list(self._growth.values()))

    def state(self) -> tuple[tuple[str, tuple[int, ...], float], ...]:
        """Return what a checkpoint keeps: prompt, lengths, growth (0: not known)."""
        return tuple((prompt, lengths, self._growth.get(prompt, 0.0)) for prompt, lengths in self._lengths.items())

    def restore(self, state: Iterable[tuple[str, tuple[int, ...], float]]) -> None:
        """Go on from a checkpoint."""
        rows = list(state)
        self._lengths = {prompt: lengths for prompt, lengths, _ in rows}
        self._growth = {prompt: growth for prompt, _, growth in rows if growth}


def earlier_lengths(config: RunConfig, prompts: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
    """Return the lengths that `rollout.history_from` holds for these prompts, each of the last step that has it.

    Raises DataError when it is of another prompt set, or cannot be read.
    """
    source = config.rollout.history_from
    if source is None:
        return {}
    known = {prompt.id: len(prompt.tokens) for prompt in prompts}
    lengths: dict[str, tuple[int, list[int]]] = {}
    for answer in read_answers(source):
        _check(source, answer.prompt_id, answer.prompt_tokens, known)
        step, of_step = lengths.get(answer.prompt_id, (-1, []))
        if answer.step > step:
            lengths[answer.prompt_id] = answer.step, [answer.response_tokens]
        elif answer.step == step:
            of_step.append(answer.response_tokens)
    return {prompt: tuple(found) for prompt, (_, found) in lengths.items()}


def _check(source: Path, prompt: str, tokens: int, known: Mapping[str, int]) -> None:
    if prompt not in known:
        raise DataError(
            f"rollout.history_from: {source} is of another prompt set: it has prompt '{prompt}', which is not among "
            f"the {len(known)} of this run; allowed is a recording of the same prompts"
        )
    if tokens != known[prompt]:
        raise DataError(
            f"rollout.history_from: {source} is of another prompt set: its prompt '{prompt}' has {tokens} tokens, "
            f"this run's has {known[prompt]}; allowed is a recording of the same prompts"
        )
