"""An LLM judge behind any OpenAI-compatible endpoint."""

from sestina.core.seconds import Seconds
from sestina.rewards.config import JudgeConfig
from sestina.rewards.messages import Sample
from sestina.rewards.outcome import RewardError, Verdict
from sestina.rewards.service.caller import Caller
from sestina.rewards.service.score import Completion, completion, question, require_text, score
from sestina.rewards.service.secret import read_secret

KEPT_CHARACTERS = 300
"""Last ones of what a judge wrote, as the reason."""


class Judge:
    """Asks about one sample at a time, as often at once as wanted; counts what that costs."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._requests = self._tokens = 0
        self._caller = Caller(
            f"{config.url.rstrip('/')}/chat/completions",
            read_secret(config.key_env, config.key_file),
            max_attempts=config.max_attempts,
            content_type="application/json",
            before=self._spend_request,
        )
        self.open, self.close = self._caller.open, self._caller.close

    async def ask(self, sample: Sample, limit_s: Seconds) -> Verdict:
        """Return the judge's score.

        Raises RewardError when the budget is spent, else what `Caller.post`, `question`, `require_text` and `score`
        raise.
        """
        body = question(self._config, sample)
        # A token is at least a byte: without a count, the most that it can have been.
        most = len(body) + self._config.max_reply_tokens
        found, attempt = await self._caller.post(body, lambda content: self._counted(content, most), limit_s)
        text = found.choices[0].message.content or ""
        notes = ("retried",) if attempt > 1 else ()
        return Verdict(reward=score(self._config, found), reason=text[-KEPT_CHARACTERS:], notes=notes)

    def _counted(self, content: bytes, most: int) -> Completion:
        """Read a reply, and count what it cost before judging whether it is one to try again."""
        found = completion(content)
        self._tokens += most if found.usage is None else found.usage.total_tokens
        require_text(self._config, found)
        return found

    def _spend_request(self) -> None:
        config = self._config
        budgets = (self._requests, config.max_requests, "requests"), (self._tokens, config.max_tokens, "tokens")
        for spent, limit, unit in budgets:
            if limit and spent >= limit:
                raise RewardError(f"the judge's budget is spent: {spent} {unit}, reward.max_{unit} {limit}")
        self._requests += 1
