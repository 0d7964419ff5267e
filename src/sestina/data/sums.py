"""The built-in task: running sums over labelled digits, modulo 10, with worked solutions.

    prompt    k3l8m1?km=          terms k=3, l=8, m=1; sum them from k to m
    solution  l8+3=1;m1+1=2;#2    each step: label, its digit, the sum so far, the new sum; then the answer
    hurried   l8=1;m1=2;#2        the sum so far is left out

The number of terms is drawn from a power law, so the prompt sets the length of its solution and lengths are
heavy-tailed; the two styles spread the lengths within a group. A solution may carry slips: a step whose new sum is
wrong, on which later steps build. Hurried solutions slip twice as often, so writing more out pays. Labels always state
the true sum.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sestina.core.noise import derive, mix
from sestina.data.prompt import RawPrompt

LABELS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
ANSWER_MARK = "#"
ALPHABET = "0123456789+=;?" + ANSWER_MARK + LABELS
"""Every character of prompts and solutions."""

HELD_OUT_SHARE = 5
"""One text in this many belongs to evaluation, by its hash, whichever seed drew it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Digits under consecutive labels."""

    first_label: int
    digits: tuple[int, ...]

    @property
    def text(self) -> str:
        """The prompt."""
        labels = LABELS[self.first_label : self.first_label + len(self.digits)]
        terms = "".join(f"{label}{digit}" for label, digit in zip(labels, self.digits, strict=True))
        return f"{terms}?{labels[0]}{labels[-1]}="

    @property
    def answer(self) -> int:
        """The sum modulo 10."""
        return sum(self.digits) % 10

    @property
    def held_out(self) -> bool:
        """Whether the problem belongs to evaluation; training never sees those."""
        key = 0
        for byte in self.text.encode():
            key = mix(key + byte + 1)
        return key % HELD_OUT_SHARE == 0


class SumsGenerator:
    """Draws problems and solutions; number `i` depends on (seed, held_out, i) alone.

    Example:
        >>> generator = SumsGenerator(seed=1, max_terms=4, tail=1.1, held_out=False)
        >>> generator.problem(0).held_out
        False
    """

    def __init__(self, *, seed: int, max_terms: int, tail: float, held_out: bool) -> None:
        steps = np.arange(1, max_terms, dtype=np.float64)
        weights = steps**-tail
        self._cumulative = np.cumsum(weights / weights.sum())
        self._seed = derive(seed, int(held_out))
        self._held_out = held_out

    def problem(self, index: int) -> Problem:
        """Return problem number `index`."""
        rng = np.random.Generator(np.random.PCG64(derive(self._seed, index)))
        num_terms = 2 + int(np.searchsorted(self._cumulative, rng.random()))
        while True:
            problem = Problem(
                first_label=int(rng.integers(0, len(LABELS) - num_terms + 1)),
                digits=tuple(rng.integers(0, 10, num_terms).tolist()),
            )
            if problem.held_out == self._held_out:
                return problem

    def prompts(self, count: int) -> list[RawPrompt]:
        """Return the first `count` problems as a prompt set."""
        side = "held-out" if self._held_out else "train"
        return [_as_prompt(self.problem(i), f"{side}-{i}") for i in range(count)]


def _as_prompt(problem: Problem, name: str) -> RawPrompt:
    meta = {"num_terms": len(problem.digits)}
    return RawPrompt(id=name, prompt=problem.text, label=str(problem.answer), meta=meta, where=f"sums:{name}")


def solution(problem: Problem, rng: np.random.Generator, *, hurried_share: float, slip_rate: float) -> str:
    """Write out one solution; `rng` decides its style and where it slips."""
    hurried = rng.random() < hurried_share
    slips: npt.NDArray[np.bool_] = rng.random(len(problem.digits)) < slip_rate * (2 if hurried else 1)
    total, steps = problem.digits[0], list[str]()
    for i, digit in enumerate(problem.digits[1:], start=1):
        before, total = total, int(rng.integers(0, 10)) if slips[i] else (total + digit) % 10
        label = LABELS[problem.first_label + i]
        steps.append(f"{label}{digit}={total};" if hurried else f"{label}{digit}+{before}={total};")
    return f"{''.join(steps)}{ANSWER_MARK}{total}"
