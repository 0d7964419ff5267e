"""Rewards of a reward server, which other runs may use too."""

import math

import msgspec

from sestina.core.seconds import Seconds
from sestina.rewards.config import RemoteConfig
from sestina.rewards.messages import Sample, packed
from sestina.rewards.outcome import Verdict
from sestina.rewards.service.caller import Caller, FailedCallError
from sestina.rewards.service.secret import read_secret
from sestina.rewards.service.wire import CONTENT_TYPE, PATH, Reply, read_reply


class Remote:
    """Asks a server about one sample at a time, as often at once as wanted."""

    def __init__(self, config: RemoteConfig) -> None:
        self._caller = Caller(
            f"{config.url.rstrip('/')}{PATH}",
            read_secret(config.key_env, config.key_file),
            max_attempts=config.max_attempts,
            content_type=CONTENT_TYPE,
        )
        self.open, self.close = self._caller.open, self._caller.close

    async def ask(self, sample: Sample, limit_s: Seconds) -> Verdict:
        """Return what the server's workers found; raises FailedCallError where they found nothing, else as `post`."""
        reply, attempt = await self._caller.post(packed(sample), _read, limit_s)
        if reply.kind != "ok":
            raise FailedCallError(f"remote_{reply.kind}", "\n".join(filter(None, (reply.error, reply.traceback))))
        if not math.isfinite(reply.reward):
            raise FailedCallError("not_finite", f"the server's reward is {reply.reward}, not a finite number")
        notes = (*reply.notes, "retried") if attempt > 1 else reply.notes
        return Verdict(reward=reply.reward, reason=reply.error, notes=notes)


def _read(content: bytes) -> Reply:
    try:
        return read_reply(content)
    except msgspec.MsgspecError as error:
        raise FailedCallError("unreadable", f"no reply of a reward server: {error}", again=True) from None
