"""What a reward server and its clients tell each other: a Sample as MessagePack, answered with a Reply."""

import msgspec

from sestina.rewards.messages import Sample, packed
from sestina.rewards.outcome import Kind, Outcome

PATH = "/v1/score"
CONTENT_TYPE = "application/msgpack"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An Outcome as it travels."""

    reward: float
    """NaN unless `kind` is "ok"."""
    kind: Kind
    error: str | None
    traceback: str | None
    notes: tuple[str, ...]


def reply_to(outcome: Outcome) -> bytes:
    """Pack an outcome."""
    return packed(
        Reply(
            reward=outcome.reward,
            kind=outcome.kind,
            error=outcome.error,
            traceback=outcome.traceback,
            notes=outcome.notes,
        )
    )


def read_reply(body: bytes) -> Reply:
    """Unpack a reply; raises msgspec.MsgspecError for what is none."""
    return _REPLIES.decode(body)


def read_sample(body: bytes) -> Sample:
    """Unpack a sample; raises msgspec.MsgspecError for what is none."""
    return _SAMPLES.decode(body)


_REPLIES = msgspec.msgpack.Decoder(Reply)
_SAMPLES = msgspec.msgpack.Decoder(Sample)
