"""Many engine steps at once.

A step over N tokens of context takes max(a + b N, c + d N) + e: reading or arithmetic, and what comes on top
(EfficientRollout, section 4). While the batch is the same, N grows by the same number of tokens in every step, so k
steps are an arithmetic series on either side of the one N at which the two lines cross: piecewise quadratic in k.
"""

from typing import NamedTuple

from sestina.core.units import Seconds


class StepLines(NamedTuple):
    """Coefficients of one batch; none negative. A tuple, since it is read for every event."""

    read_s: Seconds
    """a"""
    read_token_s: Seconds
    """b"""
    rows_s: Seconds
    """c"""
    rows_token_s: Seconds
    """d"""
    further_s: Seconds
    """e"""

    def step_s(self, tokens: float) -> Seconds:
        """Return the time of one step over so many tokens of context, all sequences together."""
        read_s, read_token_s, rows_s, rows_token_s, further_s = self
        return max(read_s + read_token_s * tokens, rows_s + rows_token_s * tokens) + further_s

    def span_s(self, steps: int, tokens: float, growth: float) -> Seconds:
        """Return the time of `steps` steps, the first over `tokens` of context, each later one over `growth` more."""
        read_s, read_token_s, rows_s, rows_token_s, further_s = self
        first = (read_s, read_token_s), (rows_s, rows_token_s)
        low, high = first if read_token_s < rows_token_s else first[::-1]
        before = self._steps_before_crossing(steps, tokens, growth)
        total = further_s * steps + _series(*low, before, tokens, growth)
        return total + _series(*high, steps - before, tokens + before * growth, growth)

    def steps_for(self, seconds: Seconds, tokens: float, growth: float) -> int:
        """Return the fewest steps that take `seconds` at least."""
        if seconds <= 0:
            return 0
        most = int(seconds / self.step_s(tokens)) + 1
        least = int(seconds / self.step_s(tokens + most * growth))
        while least < most:
            middle = (least + most) // 2
            if self.span_s(middle, tokens, growth) >= seconds:
                most = middle
            else:
                least = middle + 1
        return most

    def _steps_before_crossing(self, steps: int, tokens: float, growth: float) -> int:
        """Count the steps in which the flatter line is the higher one."""
        rise = abs(self.read_token_s - self.rows_token_s)
        drop = self.read_s - self.rows_s if self.read_token_s < self.rows_token_s else self.rows_s - self.read_s
        if drop <= rise * tokens:
            return 0
        if rise * growth == 0 or drop > rise * (tokens + steps * growth):
            return steps
        return min(steps, -int(-(drop / rise - tokens) // growth))


def _series(constant: Seconds, slope: Seconds, steps: int, tokens: float, growth: float) -> Seconds:
    return steps * (constant + slope * (tokens + growth * (steps - 1) / 2))
