"""What an environment has put into a response, between the chunks that the model drew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sestina.core.units import Seconds, TokenArray

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One answer; the model neither drew nor is trained on its tokens."""

    after: int
    """Chunks of the response before it."""
    tokens: TokenArray
    """[tokens]; empty where there was nothing to say."""
    waited_s: Seconds
    """How long the response was held back."""
    cut: bool
    """There was more than a response may observe at once."""


def woven(
    drawn: Sequence["npt.NDArray[_T]"],
    observations: Sequence[Observation],
    of: Callable[[Observation], "npt.NDArray[_T]"],
    empty: "npt.NDArray[Any]",
) -> "npt.NDArray[Any]":
    """Return arrays of chunks and of what was observed between them, in order, as one; `empty` when there are none."""
    pieces = list(drawn)
    for observation in reversed(observations):
        pieces.insert(observation.after, of(observation))
    return np.concatenate(pieces) if pieces else empty
