"""Prompts in groups, with forced lengths of a heavy tail: nothing stops a response but its limit."""

import numpy as np

from sestina.bench.speculation.subjects import Subject
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest

PROMPT_TOKENS = 24
SPREADS = (0.6, 0.8)
"""Deviations of the logarithm of a length: of a group's, and of a response's within its group."""


def requests_of(subject: Subject, batch: int, turn: int) -> list[ChunkRequest]:
    """Return the responses of a rollout."""
    random = np.random.default_rng([turn, batch])
    size, count = subject.group_size, max(subject.waves * batch, subject.least)
    groups = range(-(-count // size))
    prompts = random.integers(0, subject.vocab_size, (len(groups), PROMPT_TOKENS)).astype(np.int32)
    logs = np.repeat(random.normal(scale=SPREADS[0], size=len(groups)), size)[:count]
    lengths = subject.lengths.of(logs + random.normal(scale=SPREADS[1], size=count))
    return [
        ChunkRequest(
            id=RequestId(1000 * turn + number // size, number % size),
            prompt=prompts[number // size],
            generated=np.zeros(0, np.int32),
            max_tokens=length,
            max_new_tokens=length,
            temperature=1.0,
        )
        for number, length in enumerate(lengths)
    ]
