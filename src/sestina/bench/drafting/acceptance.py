"""Acceptance length and CPU per decoded token: the first responses of each group, with n siblings indexed."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType

from sestina.bench.asked import at_least, stated
from sestina.bench.drafting.peer import Asked, Peer
from sestina.bench.drafting.sides import DEPTH, Rounds, new_index, rehearsed_s, start_all
from sestina.bench.drafting.workload import GroupText
from sestina.bench.turns import Say
from sestina.core.units import TokenArray
from sestina.telemetry.measurements import Figure

DECODED = 3
LINEAR = Asked(max_tokens=8)
TREE = Asked(max_tokens=32, tree=True, min_token_prob=0.02)
LEAST_TREE = 2.95
LEAST_CPU = 15.0


@dataclass(slots=True)
class Tally:
    """Sums over decoded responses of one side."""

    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    spans_us: list[float] = field(default_factory=list[float])
    """CPU per token of each response."""

    def add(self, tokens: int, seconds: float, steps: int, drafted: int) -> None:
        """Count one response."""
        self.tokens, self.steps, self.drafted = self.tokens + tokens, self.steps + steps, self.drafted + drafted
        self.spans_us.append(seconds / tokens * 1e6)

    @property
    def length(self) -> float:
        """Tokens per step, the model's own included."""
        return self.tokens / self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Siblings indexed and what is asked."""

    siblings: int
    asked: Asked = LINEAR

    @property
    def name(self) -> str:
        """Such as "linear 8, 15 siblings"."""
        return f"{'tree' if self.asked.tree else 'linear'} {self.asked.max_tokens}, {self.siblings} siblings"


CASES = (*(Case(siblings=n) for n in (0, 1, 5, 15)), Case(siblings=15, asked=TREE))


def acceptance(
    seed: int, groups: Sequence[GroupText], peer: ModuleType | None, say: Say, cases: Sequence[Case] = CASES
) -> list[Figure]:
    """Decode the same responses on both sides."""
    figures: list[Figure] = []
    for case in cases:
        ours, theirs = Tally(), Tally()
        for group in groups:
            for number in range(DECODED):
                siblings = [text for i, text in enumerate(group.responses) if i != number][: case.siblings]
                text = group.responses[number]
                ours.add(len(text), *_ours(group.prompt, siblings, text, case.asked))
                if peer:
                    theirs.add(len(text), *_theirs(peer, group.prompt, siblings, text, case.asked))
        say(f"seed {seed}, {case.name}: {ours.length:.4f} tokens per step")
        figures += _lengths(seed, case, ours, theirs if peer else None)
        if case == CASES[3] and seed == 1:
            figures += _cost(ours, theirs if peer else None)
    return figures


def _ours(prompt: TokenArray, siblings: list[TokenArray], text: TokenArray, asked: Asked) -> tuple[float, int, int]:
    index = new_index()
    index.start_group(0, prompt)
    if siblings:
        Rounds(siblings).append_to(index, start_all(index, 0, len(siblings)))
    return rehearsed_s(index, index.start_request(0, len(siblings)), text, asked)


def _theirs(
    module: ModuleType, prompt: TokenArray, siblings: list[TokenArray], text: TokenArray, asked: Asked
) -> tuple[float, int, int]:
    peer = Peer(module, DEPTH)
    for sibling in siblings:
        peer.append(peer.start(prompt), sibling)
    peer.meter.spent_ns = 0
    steps, drafted = peer.rehearse(peer.start(prompt), prompt, text, asked)
    return peer.meter.spent_ns / 1e9, steps, drafted


def _lengths(seed: int, case: Case, ours: Tally, theirs: Tally | None) -> list[Figure]:
    name = f"acceptance, seed {seed}, {case.name}"
    bound = LEAST_TREE if case.asked.tree and seed == 1 else None
    figures = [
        at_least(f"{name}: tokens per step", ours.length, "tokens", bound),
        stated(f"{name}: drafted", ours.drafted / ours.steps, "tokens per step"),
    ]
    if theirs:
        figures += [
            stated(f"{name}: the peer's tokens per step", theirs.length, "tokens"),
            stated(f"{name}: the peer drafted", theirs.drafted / theirs.steps, "tokens per step"),
            at_least(f"{name}: over the peer's", ours.length / theirs.length, "x", 1.0),
        ]
    return figures


def _cost(ours: Tally, theirs: Tally | None) -> list[Figure]:
    name = "hot, group of 16, linear 8"
    figures = [stated(f"{name}: CPU per decoded token", statistics.median(ours.spans_us), "us")]
    if theirs:
        ratio = statistics.median(t / o for o, t in zip(ours.spans_us, theirs.spans_us, strict=True))
        figures += [
            stated(f"{name}: the peer's", statistics.median(theirs.spans_us), "us"),
            at_least(f"{name}: times less than the peer", ratio, "x", LEAST_CPU),
        ]
    return figures
