"""What a reward worker and its parent tell each other: MessagePack of structs, each behind its length.

The parent sends Begin, answered with Ready or Refused, then Tasks one at a time, each answered with Scored, by an
environment with Said, or with Raised.
"""

import signal
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from sestina.rewards.config import CodeConfig, ExactConfig, FunctionConfig, MathConfig, WorkerConfig
from sestina.rewards.environments.config import CalculatorConfig, ToolConfig

END = signal.SIGHUP
"""Ends a worker; nothing else sends it."""

LENGTH_BYTES = 4
"""Size of the little-endian length before every frame's body."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A response, finished or at the end of a turn, and what its reward or what follows in it may depend on."""

    prompt: str
    response: str
    label: Any
    meta: Mapping[str, Any]
    """JSON-like, as is `label`; numpy scalars and arrays are sent as numbers and lists."""


class _Base(msgspec.Struct, frozen=True, tag=True): ...


# Parent to worker


class Begin(_Base, frozen=True):
    """Load the rule of this reward configuration."""

    config: dict[str, Any]


class Task(_Base, frozen=True):
    """Score a sample."""

    id: int
    sample: Sample


# Worker to parent


class Ready(_Base, frozen=True):
    """The rule is loaded."""


class Refused(_Base, frozen=True):
    """The rule cannot be loaded; the worker leaves."""

    error: str
    traceback: str


class Scored(_Base, frozen=True):
    """The rule gave a finite number."""

    id: int
    reward: float
    elapsed_s: float
    reason: str | None = None
    notes: tuple[str, ...] = ()


class Said(_Base, frozen=True):
    """The environment answered."""

    id: int
    text: str
    elapsed_s: float


class Raised(_Base, frozen=True):
    """The rule raised."""

    id: int
    error: str
    traceback: str
    elapsed_s: float


Question: TypeAlias = Begin | Task
Answer: TypeAlias = Ready | Refused | Scored | Said | Raised


def frame(message: Question | Answer) -> bytes:
    """Return a message as it travels; raises TypeError, ValueError or OverflowError for what cannot travel."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def packed(value: Any) -> bytes:  # noqa: ANN401 - a struct
    """Return a struct of samples or rewards as MessagePack; raises as `frame` does."""
    return _ENCODER.encode(value)


def json_of(value: Any) -> bytes:  # noqa: ANN401 - anything plain
    """Return a value as JSON, numpy's as numbers and lists; raises as `frame` does."""
    return _JSON.encode(value)


def question(body: bytes) -> Question:
    """Return what the parent asked."""
    return _QUESTIONS.decode(body)


def answer(body: bytes) -> Answer:
    """Return what the worker answered."""
    return _ANSWERS.decode(body)


def begin(config: WorkerConfig) -> Begin:
    """Pack a configuration."""
    return Begin(config=msgspec.to_builtins(config))


def config_of(message: Begin) -> WorkerConfig:
    """Unpack a configuration."""
    kinds = {
        "exact": ExactConfig,
        "math": MathConfig,
        "function": FunctionConfig,
        "code": CodeConfig,
        "calculator": CalculatorConfig,
        "tool": ToolConfig,
    }
    return msgspec.convert(message.config, kinds[message.config["kind"]])


def _plain(value: Any) -> Any:  # noqa: ANN401 - the hook's signature
    # numpy's arrays and scalars answer tolist(); asked by name, so that a worker starts without importing numpy.
    if not hasattr(value, "tolist"):
        raise TypeError(f"label and meta hold values as JSON has them, not {type(value).__name__}")
    return value.tolist()


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
_JSON = msgspec.json.Encoder(enc_hook=_plain)
_QUESTIONS = msgspec.msgpack.Decoder(Question)
_ANSWERS = msgspec.msgpack.Decoder(Answer)
