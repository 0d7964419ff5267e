"""The epoch before: what the prompts of a rollout were answered with other noise, which histories are made of."""

import time
from collections.abc import Sequence

from sestina.bench.speculation.race import race
from sestina.core.errors import RunError
from sestina.core.records import ChunkRequest
from sestina.core.units import Seconds
from sestina.drafting.history.answers import Answers, to_record
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.desk import DraftDesk

LIMIT_S: Seconds = 60.0
_LOOK_S: Seconds = 0.01


def remember(desks: Sequence[DraftDesk], before: Engine, requests: Sequence[ChunkRequest]) -> None:
    """Have `before` answer the requests, and the drafters at these desks take that for their histories.

    Returns when they have; raises RunError when they have not in time. Rewards are alike.
    """
    answered = race({"none": before}, requests)["none"].results
    for group, prompt in {request.id.group: request.prompt for request in requests}.items():
        texts = tuple(result.tokens for id, result in answered.items() if id.group == group)
        record = to_record(Answers(responses=texts, weights=(1,) * len(texts)))
        for desk in desks:
            assert desk.take_history is not None, "only who drafts from histories is told of them"
            desk.take_history(group, prompt, record)
    _wait(desks, len({request.id.group for request in requests}))


def _wait(desks: Sequence[DraftDesk], count: int) -> None:
    """Take what is counted of histories, until every desk has read so many more."""
    read, until_s = [0] * len(desks), time.monotonic() + LIMIT_S
    while min(read) < count:
        for number, desk in enumerate(desks):
            read[number] += desk.tally.take().histories
        if time.monotonic() > until_s:
            raise RunError(f"{min(read)} of {count} histories were read in {LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)
