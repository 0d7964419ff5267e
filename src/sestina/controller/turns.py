"""What becomes of a response whose turn has ended: an environment is asked, and what it answers follows.

turn ends -> worker of the environment -> tokens -> the response goes on, or is at its limit, or has failed
"""

import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

from sestina.controller.sample import Sample
from sestina.core.errors import ConfigError, ModelError
from sestina.core.records import NO_TURN
from sestina.core.units import Seconds
from sestina.models.tokenizer import Tokenizer
from sestina.policies.events import Observed
from sestina.rewards import messages
from sestina.rewards.environments.config import AnsweringConfig, EnvironmentConfig, NoEnvironmentConfig
from sestina.rewards.outcome import Outcome, failed
from sestina.rewards.pool import RewardPool

TOKEN_CHARACTERS = 64
"""Of an answer for each token that may be observed; the rest is cut unread, since others wait while it is encoded."""
MOST_SAID = 1000
"""Characters of an error."""


class Turns:
    """Asks the environment of a run."""

    def __init__(self, config: AnsweringConfig, pool: RewardPool, tokenizer: Tokenizer) -> None:
        self.timeout_s = config.timeout_s
        self._max_tokens = config.max_observation_tokens
        self._max_characters = TOKEN_CHARACTERS * config.max_observation_tokens
        self._pool = pool
        self._tokenizer = tokenizer

    async def answer(self, sample: Sample) -> Observed:
        """Ask what follows in a response, add it; returns what the planner is to know.

        An answer that leaves no room for a further token ends the response without it, as its limit would; a failure
        ends it without a reward. Raises RewardError when there are no workers left to ask.
        """
        asked_s = time.monotonic()
        outcome = await self._ask(sample)
        now = time.monotonic()
        if outcome.text is None:
            sample.fail(dataclasses.replace(outcome, error=f"environment: {outcome.error}"), now)
            return Observed(request=sample.id, observed_tokens=0, done=True)
        text = outcome.text[: self._max_characters]
        tokens = self._tokenizer.encode(text)
        kept = tokens[: self._max_tokens]
        if len(kept) >= sample.room:
            sample.end_full()
            return Observed(request=sample.id, observed_tokens=0, done=True)
        sample.observe(kept, waited_s=now - asked_s, cut=len(kept) < len(tokens) or text != outcome.text)
        return Observed(request=sample.id, observed_tokens=len(kept), done=False)

    async def _ask(self, sample: Sample) -> Outcome:
        """Return an outcome whose text has tokens, or one without text."""
        prompt, response = sample.prompt, self._tokenizer.decode(sample.tokens)
        outcome = await self._pool.score(
            messages.Sample(prompt=prompt.text, response=response, label=prompt.label, meta=prompt.meta)
        )
        try:
            self._tokenizer.encode((outcome.text or "")[: self._max_characters])
        except ModelError as error:
            return failed("raised", str(error)[:MOST_SAID], outcome.elapsed_s)
        return outcome


@contextlib.asynccontextmanager
async def open_turns(
    config: EnvironmentConfig, tokenizer: Tokenizer, start_limit_s: Seconds
) -> AsyncIterator[Turns | None]:
    """Start the environment's workers, and end them; None without an environment. Raises as `RewardPool`."""
    if isinstance(config, NoEnvironmentConfig):
        yield None
        return
    async with RewardPool(config, start_limit_s=start_limit_s) as pool:
        yield Turns(config, pool, tokenizer)


def turn_token_of(config: EnvironmentConfig, tokenizer: Tokenizer) -> int:
    """Return the token that ends a turn; raises ConfigError when `turn_end` is not one of the model's tokens."""
    if isinstance(config, NoEnvironmentConfig):
        return NO_TURN
    try:
        tokens = tokenizer.encode(config.turn_end).tolist()
    except ModelError as error:
        raise ConfigError([f"environment.turn_end: {error}"]) from None
    if len(tokens) != 1 or tokens[0] == tokenizer.eos_id:
        is_ = "the end of sequence" if tokens == [tokenizer.eos_id] else f"{len(tokens)} tokens of model.path"
        raise ConfigError([f"environment.turn_end: {config.turn_end!r} is {is_}; it must be one other token"])
    return tokens[0]
