"""What a worker's part of a batch takes (RhymeRL, section 5.2: tau, there profiled beforehand).

A decode step costs something whatever it holds, and something for each response in it. A part with so many tokens, the
longest response being so long, therefore takes `step_s * longest + token_s * tokens`. Both are fitted by least squares
to the latest parts, which the first epoch has already brought.
"""

from collections import deque
from dataclasses import dataclass

from sestina.core.units import Seconds

WINDOW = 256
"""Latest parts that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one worker did of one batch."""

    longest: int
    """Tokens of its longest response."""
    tokens: int
    seconds: Seconds


class Profile:
    """Learns from parts that are over.

    Example:
        >>> profile = Profile()
        >>> for longest, tokens in ((10, 100), (20, 100), (10, 300)):
        ...     profile.learn(Part(longest=longest, tokens=tokens, seconds=0.5 * longest + 0.01 * tokens))
        >>> round(profile.seconds(30, 200), 6)
        17.0
    """

    def __init__(self) -> None:
        self._parts: deque[Part] = deque(maxlen=WINDOW)
        self._fit = (0.0, 1.0)

    @property
    def learnt(self) -> bool:
        """Whether `seconds` are seconds; before, a token counts one."""
        return bool(self._parts)

    def learn(self, part: Part) -> None:
        """Take a part into account."""
        if part.tokens and part.seconds > 0:
            self._parts.append(part)
            self._fit = _fit(self._parts)

    def seconds(self, longest: float, tokens: float) -> Seconds:
        """Return what a part is expected to take."""
        step_s, token_s = self._fit
        return step_s * longest + token_s * tokens


def _fit(parts: "deque[Part]") -> tuple[float, float]:
    """Return the costs, none below zero, that leave the least squared error."""
    xx = float(sum(part.longest**2 for part in parts))
    yy = float(sum(part.tokens**2 for part in parts))
    xy = float(sum(part.longest * part.tokens for part in parts))
    xt = sum(part.longest * part.seconds for part in parts)
    yt = sum(part.tokens * part.seconds for part in parts)
    determinant = xx * yy - xy * xy
    if determinant <= 1e-9 * xx * yy:  # one part, or all of one shape: tokens alone
        return 0.0, yt / yy
    step_s, token_s = (xt * yy - yt * xy) / determinant, (yt * xx - xt * xy) / determinant
    if step_s < 0:
        return 0.0, yt / yy
    return (xt / xx, 0.0) if token_s < 0 else (step_s, token_s)
