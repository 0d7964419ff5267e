"""Drafts of HistoSpec in a simulated world: the paper's window as a chain, and what it yields.

Draft tokens are taken to be accepted one by one with one probability. The window is then a chain over its lengths: it
grows when all of a draft is accepted and falls back otherwise (algorithms-and-numbers R-C). In the long run a step has
the chain's mean draft and its mean of accepted tokens. The probability is the one under which their ratio is what the
paper has measured.

Not every step finds a draft. Of mathematics 7 % of a response's tokens do not follow on anything of the last epoch
under the shortest prefix, of code 25 % (section 5.1); each of them takes a step of its own, without a draft. That is
the least: the paper's count takes every match to its end, and has no values of what drafts yield in a run (figure 17).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sestina.core.errors import ConfigError
from sestina.simulator.acceptance import Drafting, yielded

WINDOWS = range(2, 33, 2)
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """Of a step with drafts, in the mean."""

    drafted: float
    accepted: float


def histospec(acceptance: float, similarity: float) -> Drafting:
    """Return drafts of which this share is accepted, and that are left out where plain steps are faster.

    `similarity`: share of tokens that follow on a match in the last epoch.

    Raises ConfigError for an acceptance that is no share.
    """
    step, longest = windowed(rate_of(acceptance)), WINDOWS[-1]
    with_draft = similarity / (1 + step.accepted)
    steps = with_draft + 1 - similarity
    """Of a token."""
    drafted = step.drafted * with_draft / steps
    return Drafting(lengths=(0, longest), siblings=(0,), rates=((1.0, 1 / steps),), drafted=(drafted / longest,))


def rate_of(acceptance: float) -> float:
    """Return at what rate a draft token is accepted when, under the window, this share of all of them is."""
    if not 0 < acceptance < 1:
        raise ConfigError([f"acceptance: {acceptance:g} is not allowed; between 0 and 1"])
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        step = windowed(middle)
        low, high = (middle, high) if step.accepted < acceptance * step.drafted else (low, middle)
    return low


def windowed(rate: float) -> Windowed:
    """Return the mean step when each token is accepted at `rate` if those before it were."""
    shares = _shares(rate)
    drafted = sum(share * window for share, window in zip(shares, WINDOWS, strict=True))
    accepted = sum(share * (yielded(rate, window) - 1) for share, window in zip(shares, WINDOWS, strict=True))
    return Windowed(drafted=drafted, accepted=accepted)


def _shares(rate: float) -> Sequence[float]:
    """Return the share of steps with each window; the longest one stays while all is accepted."""
    weights = [1.0]
    for window in WINDOWS[:-1]:
        weights.append(weights[-1] * rate**window)
    weights[-1] /= 1 - rate ** WINDOWS[-1] if rate < 1 else 1e-300
    return [weight / sum(weights) for weight in weights]
