"""What speculation may lose: a share of all time, earned before it is spent.

The allowance grows by `share` of the time that plain decoding would have taken for the tokens so far, and by all that
speculation gains on it; losses are paid from it. At no time has speculation lost more than was earned, but for the one
step that overdraws it; what it gained is kept for `most_steps` plain steps at most, so that a long gain cannot pay for
a long loss. With the first step comes what `first_steps` plain ones take. A whole run therefore takes at most
(1 + share) times plain decoding's time, plus that and one step's loss.
"""

from sestina.core.units import Seconds


class Ledger:
    """Counts in seconds, from 0."""

    def __init__(self, *, share: float, most_steps: float, first_steps: float) -> None:
        self._share = share
        self._most_steps = most_steps
        self._first_steps = first_steps
        self.allowance_s: Seconds = 0.0

    def plain(self, seconds: Seconds, *, steps: int = 1) -> None:
        """So many plain steps took `seconds` each."""
        self._add(self._share * seconds * steps, seconds)

    def speculative(self, *, plain_s: Seconds, tokens_per_request: float, seconds: Seconds) -> None:
        """A step took `seconds` for what `tokens_per_request` plain steps of `plain_s` would have produced."""
        equal_s = tokens_per_request * plain_s
        self._add((1 + self._share) * equal_s - seconds, plain_s)

    def covers(self, loss_s: Seconds) -> bool:
        """Whether a step may lose this much."""
        return self.allowance_s >= max(loss_s, 0.0)

    def _add(self, seconds: Seconds, step_s: Seconds) -> None:
        first_s, self._first_steps = self._first_steps * step_s, 0.0
        self.allowance_s = min(self.allowance_s + seconds + first_s, self._most_steps * step_s)
