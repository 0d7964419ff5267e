"""Mathematical answers compared by math-verify."""

import logging
import re
from typing import Any

from math_verify import parse, verify

from sestina.rewards.messages import Sample

NO_LIMIT = 0
"""math-verify's own limits need SIGALRM and swallow what they stop; the worker's parent holds the limit instead."""

_MARKED = re.compile(r"\$.+\$|\\boxed|\\\(|\\\[", re.DOTALL)
"""A label that says where its formula is."""

# Each module warns once that its limit is off.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def math_reward(sample: Sample) -> float:
    r"""Return 1.0 when the response's final answer equals the label, else 0.0.

    Answers in several boxes are read together, as a set: see math-verify. An answer it cannot read or compare is not
    equal. Raises ValueError for a label it cannot read.
    """
    gold = _parse_label(sample.label)
    return float(verify(gold, parse(sample.response, parsing_timeout=NO_LIMIT), timeout_seconds=NO_LIMIT))


def _parse_label(label: Any) -> list[Any]:  # noqa: ANN401 - whatever a file holds
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        raise ValueError(f"label must be an answer as text or a number, found {type(label).__name__} {label!r}")
    text = str(label)
    # Without marks only plain numbers are looked for: "3\pi" would be read as 3.
    gold = parse(text if _MARKED.search(text) else f"${text}$", parsing_timeout=NO_LIMIT)
    if all(isinstance(part, str) for part in gold):
        raise ValueError(f"label {label!r} cannot be read as an answer")
    return gold
