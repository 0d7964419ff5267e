"""What drafting begins with after steps without drafts: the index is told of all texts that have come or gone since."""

from sestina.core.units import Seconds

TEXT_S: Seconds = 5e-5
"""Of one text, before any was told; some hundred tokens on a core of 2.6 GHz."""


class Arrears:
    """Predicts the time by what it took last, for each text."""

    def __init__(self) -> None:
        self._text_s = TEXT_S

    def expected_s(self, num_texts: int) -> Seconds:
        """Return what telling of so many texts will take."""
        return num_texts * self._text_s

    def took(self, num_texts: int, seconds: Seconds) -> None:
        """So many texts were told of; mutates what is expected, unless there were none."""
        if num_texts:
            self._text_s = seconds / num_texts
