"""Drafting as a simulation has it: how many tokens a step yields, by draft length and finished siblings.

Acceptance is one rate alpha for every place of a draft, so a draft of g tokens yields 1 + alpha + ... + alpha^g
(EfficientRollout, section 4; algorithms-and-numbers E-A). alpha is what the configured table of means implies.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.config.sim import AcceptanceConfig, CalibratedConfig, SimConfig
from sestina.core.errors import ConfigError
from sestina.simulator.chunk import Chunk
from sestina.simulator.cost.step import EngineCost
from sestina.simulator.yields import Yields, check_whole, read_yields

_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Draft lengths tried where the run's policy adapts them."""

_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Draft lengths to choose from, and what each yields."""

    lengths: tuple[int, ...]
    """0: a plain step."""
    siblings: tuple[int, ...]
    """Finished siblings from which on a class of responses begins; rising from 0."""
    rates: tuple[tuple[float, ...], ...]
    """[classes][lengths]: tokens per step"""
    drafted: tuple[float, ...] = ()
    """[classes]: share of the longest draft that is found, in the mean; none: all of it"""
    recorded: Yields | None = None
    """Whose classes they are, where each chunk of a response has its own; there are no others by siblings then."""
    choices: tuple[int, ...] | None = None
    """Indices of the lengths that the run's policy chooses from, where steps have room for so many rows alone: the
    others are what its drafts are cut to, from 0 on. None: it chooses from all, and there is room."""

    @property
    def limited(self) -> bool:
        """Whether steps may have no room for what is drafted."""
        return self.choices is not None

    def classes_of(self, chunk: Chunk, finished: int) -> list[tuple[int, int]]:
        """Return the classes of a chunk of a response with so many finished siblings, by the tokens they go up to."""
        if self.recorded is None:
            return [(chunk.tokens, self.level(finished))]
        begin = chunk.generated_tokens
        recorded = self.recorded.classes_of(chunk.request, begin, begin + chunk.tokens)
        return [(end - begin, number) for end, number in recorded]

    def level(self, finished: int) -> int:
        """Return the class that so many finished siblings make."""
        return bisect_right(self.siblings, finished) - 1

    def drafts(self, index: int, counts: Sequence[int]) -> float:
        """Return the draft tokens of a response in a step with drafts of a length, the mean over all.

        `counts`: responses of each class.
        """
        length = self.lengths[index]
        if not self.drafted or not length:
            return length
        found = sum(count * share for count, share in zip(counts, self.drafted, strict=True))
        return length * found / sum(counts)

    def choose(
        self, cost: EngineCost, batch: int, tokens: float, counts: Sequence[int], *, joined: bool = False
    ) -> int:
        """Return the index of the length whose steps take least time for each token (Seer v3, algorithm 1).

        `counts`: responses of each class. `joined`: chunks join the step, and take rows.
        """
        choices = range(len(self.lengths)) if self.choices is None else self.choices
        best = choices[0]
        if len(choices) > 1:
            best = min(choices, key=lambda index: self._token_s(cost, batch, tokens, counts, index))
        return self._cut(best, cost.draft_rows(batch, joined=joined), batch, counts) if self.limited else best

    def _cut(self, index: int, rows: int, batch: int, counts: Sequence[int]) -> int:
        """Return the longest length, up to one, for whose drafts there are rows."""
        while index and batch * self.drafts(index, counts) > rows:
            index -= 1
        return index

    def _token_s(self, cost: EngineCost, batch: int, tokens: float, counts: Sequence[int], index: int) -> float:
        gained = sum(count * rates[index] for count, rates in zip(counts, self.rates, strict=True))
        return cost.lines(batch, self.drafts(index, counts)).step_s(tokens) / gained


NO_DRAFTS = Drafting(lengths=(0,), siblings=(0,), rates=((1.0,),))


def drafting_of(config: RunConfig, sim: SimConfig) -> Drafting:
    """Return what a run's section `draft` comes to; raises ConfigError for a source without a table of acceptance."""
    draft, table = config.draft, sim.acceptance
    if draft.source == "none":
        return NO_DRAFTS
    if draft.source not in ("self", "grouped"):
        raise ConfigError([
            f"draft.source: '{draft.source}' is not carried by a simulation, which knows no acceptance of it; 'none', "
            "'self' and 'grouped' are"
        ])  # fmt: skip
    if table is None:
        raise ConfigError(["sim.acceptance: null is not allowed with draft.source; sim=simulated has a table"])
    lengths = _lengths(config)
    if not isinstance(sim.hardware, CalibratedConfig):
        return _with(config, table, lengths)
    # Of the embedded engine, whose steps have rows for so many; servers of GPUs have as many as they are given.
    if table.recording is not None:
        check_whole(table.recording, draft_tokens=table.draft_tokens)
    room = tuple(sorted({0, *(length for length in _LENGTHS if length < lengths[-1]), *lengths}))
    return replace(_with(config, table, room), choices=tuple(room.index(length) for length in lengths))


def _with(config: RunConfig, table: AcceptanceConfig, lengths: tuple[int, ...]) -> Drafting:
    if table.recording is not None:
        return _recorded(table, table.recording, lengths)
    _check(table)
    classes = len(table.siblings) if config.draft.source == "grouped" else 1
    drafted = tuple(mean / table.draft_tokens for mean in table.drafted_per_step[:classes])
    return Drafting(
        lengths=lengths,
        siblings=table.siblings[:classes],
        rates=_rates(table.tokens_per_step[:classes], drafted, table.draft_tokens, lengths),
        drafted=drafted,
    )


def _recorded(table: AcceptanceConfig, recording: Path, lengths: tuple[int, ...]) -> Drafting:
    yields = read_yields(recording, draft_tokens=table.draft_tokens)
    drafted = tuple(mean / table.draft_tokens for mean in yields.drafted_per_step)
    return Drafting(
        lengths=lengths,
        siblings=(0,),
        rates=_rates(yields.tokens_per_step, drafted, table.draft_tokens, lengths),
        drafted=drafted,
        recorded=yields,
    )


def _check(table: AcceptanceConfig) -> None:
    rising = list(table.siblings) == sorted(set(table.siblings)) and table.siblings[:1] == (0,)
    if not rising or len(table.siblings) != len(table.tokens_per_step):
        raise ConfigError([
            f"sim.acceptance.siblings: {list(table.siblings)} is not allowed with {len(table.tokens_per_step)} values "
            "of sim.acceptance.tokens_per_step; as many, rising from 0"
        ])  # fmt: skip
    wrong = [mean for mean in table.tokens_per_step if not 1 <= mean <= table.draft_tokens + 1]
    if wrong:
        raise ConfigError([
            f"sim.acceptance.tokens_per_step: {wrong[0]:g} is not allowed with sim.acceptance.draft_tokens "
            f"{table.draft_tokens}; from 1 to {table.draft_tokens + 1}"
        ])  # fmt: skip
    found = table.drafted_per_step
    if len(found) not in (0, len(table.siblings)) or any(mean > table.draft_tokens for mean in found):
        raise ConfigError([
            f"sim.acceptance.drafted_per_step: {list(found)} is not allowed with {len(table.siblings)} values of "
            f"sim.acceptance.siblings and sim.acceptance.draft_tokens {table.draft_tokens}; as many of at most that, "
            "or none"
        ])  # fmt: skip
    free = [pair for pair in zip(table.tokens_per_step, found, strict=False) if pair[0] > 1 + pair[1]]
    if free:
        raise ConfigError([
            f"sim.acceptance.tokens_per_step: {free[0][0]:g} is not allowed with {free[0][1]:g} of "
            "sim.acceptance.drafted_per_step; at most one more than is drafted"
        ])  # fmt: skip


def _rates(
    means: Sequence[float], drafted: Sequence[float], draft_tokens: int, lengths: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """Return [means][lengths]: tokens per step, from those that drafts of `draft_tokens` yield.

    `drafted`: as of `Drafting`. A draft is found whole or not at all.
    """
    found = drafted or (1.0,) * len(means)
    return tuple(_of_class(mean, share, draft_tokens, lengths) for mean, share in zip(means, found, strict=True))


def _of_class(mean: float, share: float, draft_tokens: int, lengths: Sequence[int]) -> tuple[float, ...]:
    rate = _rate(1.0 + (mean - 1.0) / share, draft_tokens) if share else 0.0
    return tuple(1.0 + share * (yielded(rate, length) - 1.0) for length in lengths)


def yielded(rate: float, length: int) -> float:
    """Return the mean tokens of a step with a draft of so many, each accepted at `rate` if those before it were."""
    return sum(rate**place for place in range(length + 1))


def _lengths(config: RunConfig) -> tuple[int, ...]:
    most = config.draft.max_tokens
    plain = () if config.draft.toggle == "always" else (0,)
    shorter = () if config.draft.length == "fixed" else tuple(length for length in _LENGTHS if length < most)
    return (*plain, *shorter, most)


def _rate(mean: float, length: int) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if yielded(middle, length) < mean else (low, middle)
    return low
