"""Runs code that is not ours."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

TRACEBACK_LINES = 12
"""Last lines kept: they name where it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a call raised."""

    error: str
    """As "ValueError: message"."""
    traceback: str
    """Its last lines."""
    cause: BaseException


def attempt(call: Callable[[], T]) -> T | Failure:
    """Return what `call` returns, or what it raised: any Exception, or the SystemExit of sys.exit()."""
    try:
        return call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything; all of it is reported
        lines = "".join(traceback.format_exception(error)).splitlines()
        return Failure(
            error="".join(traceback.format_exception_only(error)).strip(),
            traceback="\n".join(lines[-TRACEBACK_LINES:]),
            cause=error,
        )
