"""What is held against what.

Where a token's bits are the same in any batch, responses must be equal, tokens and logprobs to the last bit: the noise
is the same (core.noise). Where sums round differently and little (SGLang on a CPU, float32), tokens must be equal, but
for ties: two tokens whose logprobs and noise add up to the same within the rounding. Elsewhere two things must hold.
With the same noise, logprobs of the tokens that both sides drew after the same text differ little. With other noise,
the tokens at some positions come from one distribution (Pearson's chi-square test of homogeneity; Agresti, Categorical
Data Analysis, section 3.2), to which all prompts are pooled: both sides have the same ones, which makes the test err
towards passing, never failing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from sestina.core.noise import exponentials, request_key
from sestina.core.records import ChunkRequest
from sestina.core.units import TokenArray
from sestina.rollout.certificate.decode import Response

HeldBy: TypeAlias = Literal["bits", "noise", "distributions"]
"""What both sides have in common: every bit, the noise that tokens are drawn with, or what they are drawn from."""

TIE = 1e-4
"""Logprobs that differ by no more may have been summed in another order; some twenty times what was measured (0020)."""

LEVEL = 0.001
"""Chance that a test of distributions fails though nothing is wrong, all its positions together."""

LEAST_EXPECTED = 5
"""In a column of the test, on each side; tokens next to each other share one until there are as many (Cochran)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison."""

    arm: str
    """What was on."""
    name: str
    passed: bool
    found: str
    """In words, with the figures."""


def equal(arm: str, off: Sequence[Response], on: Sequence[Response]) -> Check:
    """Require equal responses, bit by bit."""
    wrong = [i for i, pair in enumerate(zip(off, on, strict=True)) if not _same(*pair)]
    found = f"{len(off)} responses of {sum(len(r.tokens) for r in off)} tokens are equal to the last bit"
    if wrong:
        at = _common(off[wrong[0]].tokens, on[wrong[0]].tokens)
        found = f"{len(wrong)} of {len(off)} responses differ; number {wrong[0]} from token {at} on"
    return Check(arm=arm, name="tokens and logprobs", passed=not wrong, found=found)


def equal_but_for_ties(
    arm: str, off: Sequence[Response], on: Sequence[Response], asked: Sequence[ChunkRequest], *, seed: int
) -> Check:
    """Require equal tokens, logprobs within TIE, and a tie where responses part; `asked` [responses] with this seed."""
    prefixes = _prefixes(off, on)
    parted = [i for i, (a, b, n) in enumerate(prefixes) if n < max(len(a.tokens), len(b.tokens))]
    wrong = [i for i in parted if not _is_tie(*prefixes[i], asked[i], seed)]
    most = max((float(np.abs(a.logprobs[:n] - b.logprobs[:n]).max(initial=0)) for a, b, n in prefixes), default=0.0)
    tokens = sum(n for _, _, n in prefixes)
    found = f"{tokens} tokens of {len(off)} responses are equal, {len(parted)} of which part at a tie; "
    if wrong:
        found = (
            f"{len(wrong)} of {len(off)} responses differ; number {wrong[0]} from token {prefixes[wrong[0]][2]} on; "
        )
    found += f"logprobs by at most {most:.2g}, allowed {TIE:g}"
    return Check(arm=arm, name="tokens", passed=not wrong and most <= TIE, found=found)


def close(arm: str, off: Sequence[Response], on: Sequence[Response], *, most: float) -> Check:
    """Require logprobs after the same text to differ by at most `most` in the mean."""
    differences = [np.abs(a.logprobs[:n] - b.logprobs[:n]) for a, b, n in _prefixes(off, on)]
    all = np.concatenate([*differences, np.zeros(0, np.float32)])
    total = sum(max(len(a.tokens), len(b.tokens)) for a, b in zip(off, on, strict=True))
    mean = float(all.mean()) if len(all) else float("inf")
    found = f"mean difference {mean:.3g}, allowed {most:g}; {len(all)} of {total} tokens are drawn alike"
    return Check(arm=arm, name="logprobs", passed=mean <= most, found=found)


def alike(arm: str, off: Sequence[Response], on: Sequence[Response]) -> Check:
    """Require the tokens at positions 0, 1, 2, 4, ... to come from one distribution."""
    longest = max(len(response.tokens) for response in (*off, *on))
    positions = [0, *(1 << power for power in range((longest - 1).bit_length()))]
    chances = {at: _chance([_tokens(side, at) for side in (off, on)]) for at in positions}
    least = min(chances, key=lambda at: chances[at])
    passed = chances[least] >= LEVEL / len(positions)
    found = (
        f"least chance {chances[least]:.3g} (token {least}) of {len(positions)} positions, "
        f"allowed {LEVEL / len(positions):.3g}; {len(off)} responses on each side"
    )
    return Check(arm=arm, name="distribution of tokens (chi-square)", passed=passed, found=found)


def used(arm: str, on: Sequence[Response], *, drafts: bool, chunks: bool) -> list[Check]:
    """Require that what is on came to be used: a comparison of nothing proves nothing."""
    drafted, accepted = sum(r.drafted_tokens for r in on), sum(r.accepted_tokens for r in on)
    moves = sum(r.migrations for r in on)
    checks: list[Check] = []
    if drafts:
        found = f"{drafted} tokens drafted, {accepted} of them accepted"
        checks.append(Check(arm=arm, name="drafts in use", passed=drafted > 0, found=found))
    if chunks:
        checks.append(Check(arm=arm, name="migration in use", passed=moves > 0, found=f"{moves} chunks changed engine"))
    return checks


def _same(a: Response, b: Response) -> bool:
    return np.array_equal(a.tokens, b.tokens) and np.array_equal(a.logprobs, b.logprobs)


def _is_tie(a: Response, b: Response, at: int, asked: ChunkRequest, seed: int) -> bool:
    """Return whether the tokens at which two responses part are as good as each other under their noise.

    Either side drew the token with the greatest sum of logprob and noise. If no logprob differs by more than TIE, these
    two sums do not either.
    """
    if at == min(len(a.tokens), len(b.tokens)):
        return False
    position = len(asked.prompt) + len(asked.generated) + at - 1
    drawn = [int(side.tokens[at]) for side in (a, b)]
    arrival = np.log(exponentials(request_key(seed, asked.id), position, max(drawn) + 1))
    one, other = (float(side.logprobs[at]) - arrival[token] for side, token in zip((a, b), drawn, strict=True))
    return abs(one - other) <= TIE


def _common(a: TokenArray, b: TokenArray) -> int:
    """Return how many tokens both begin with."""
    shorter = min(len(a), len(b))
    return int((a[:shorter] == b[:shorter]).cumprod().sum())


def _prefixes(off: Sequence[Response], on: Sequence[Response]) -> list[tuple[Response, Response, int]]:
    return [(a, b, _common(a.tokens, b.tokens)) for a, b in zip(off, on, strict=True)]


def _tokens(side: Sequence[Response], at: int) -> TokenArray:
    """Return [responses] the token at a position, -1 where a response has ended."""
    return np.array([response.tokens[at] if at < len(response.tokens) else -1 for response in side])


def _chance(sides: Sequence[TokenArray]) -> float:
    """Return the chance of a chi-square at least as large if both sides are of one distribution."""
    values = np.unique(np.concatenate(sides))
    counts = np.array([[np.sum(side == value) for value in values] for side in sides], float)
    full = counts.sum(axis=0).cumsum() // (2 * LEAST_EXPECTED)
    columns = np.minimum(np.append(0, full[:-1]), full[-1] - 1).clip(min=0).astype(int)
    table = np.stack([np.bincount(columns, weights=row) for row in counts])
    table = table[:, table.any(axis=0)]
    if table.shape[1] < 2:  # noqa: PLR2004 - one value alone is one distribution
        return 1.0
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    half = torch.tensor((table.shape[1] - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(statistic / 2, dtype=torch.float64)))
