"""One kind of HTTP call: signed, tried again with back-off and jitter, ended by its deadline."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

import aiohttp

from sestina.core.seconds import Seconds
from sestina.rewards.outcome import RewardError

T = TypeVar("T")

FIRST_WAIT_S: Seconds = 0.5
LONGEST_WAIT_S: Seconds = 30.0
"""Before a call is tried again; doubled each time in between, and a random part of it taken."""
MAX_REPLY_BYTES = 4 << 20
KEPT_CHARACTERS = 200
"""Of a reply that is no answer."""

_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_REFUSED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class FailedCallError(Exception):
    """A call came to nothing; `note` names how, for the metrics."""

    def __init__(self, note: str, text: str, *, again: bool = False, wait_s: Seconds = 0.0) -> None:
        super().__init__(text)
        self.note, self.again, self.wait_s = note, again, wait_s


class Caller:
    """Many calls at once to one address; open and close it within one event loop."""

    def __init__(
        self,
        url: str,
        secret: str | None,
        *,
        max_attempts: int,
        content_type: str,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is told of every attempt, and raises where none may be made."""
        self._url, self._secret, self._max_attempts, self._before = url, secret, max_attempts, before
        self._headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {secret}"} if secret else {})
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make calls possible; a second time it does nothing."""
        if self._http is None:
            connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
            self._http = aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=limit)

    async def close(self) -> None:
        """Close all connections; a second time it does nothing."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def post(self, body: bytes, read: Callable[[bytes], T], limit_s: Seconds) -> tuple[T, int]:
        """Return what `read` makes of the reply, and at which attempt it came.

        `read` raises FailedCallError for a reply that is none. Raises FailedCallError when all attempts failed or the
        next would come too late, TimeoutError at the deadline, RewardError when the key is refused.
        """
        deadline = time.monotonic() + limit_s
        for attempt in range(1, self._max_attempts + 1):
            self._before()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    return read(await self._once(body)), attempt
            except FailedCallError as error:
                longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1))
                wait_s = error.wait_s + random.uniform(0, longest)
                if not error.again or attempt == self._max_attempts or time.monotonic() + wait_s >= deadline:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _once(self, body: bytes) -> bytes:
        assert self._http, "the caller is not open"
        try:
            # A redirect would take the key along to whom it names.
            async with self._http.post(self._url, data=body, allow_redirects=False) as reply:
                content = self._without_key(await _bounded(reply))
                if reply.status != HTTPStatus.OK:
                    raise self._failure(reply, content)
                return content
        except aiohttp.ClientError as error:
            raise FailedCallError("unreachable", f"{type(error).__name__}: {error}", again=True) from None

    def _failure(self, reply: aiohttp.ClientResponse, content: bytes) -> FailedCallError:
        said = content[:KEPT_CHARACTERS].decode(errors="replace")
        if reply.status in _REFUSED:
            raise RewardError(f"{self._url} refuses the key with status {reply.status}: {said}")
        return FailedCallError(
            f"http_{reply.status}",
            f"status {reply.status}: {said}",
            again=reply.status in _AGAIN,
            wait_s=retry_after_s(reply.headers.get("Retry-After", "")),
        )

    def _without_key(self, content: bytes) -> bytes:
        """Return what somebody else wrote, who may have repeated the key; parts of it are kept in traces."""
        return content.replace(self._secret.encode(), b"***") if self._secret else content


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    content = b""
    async for piece in reply.content.iter_any():
        content += piece
        if len(content) > MAX_REPLY_BYTES:
            raise FailedCallError("oversized", f"a reply of more than {MAX_REPLY_BYTES} bytes")
    return content


def retry_after_s(header: str) -> Seconds:
    """Return the wait that a Retry-After header asks for, in seconds or as a date; 0 where it says neither."""
    with contextlib.suppress(ValueError):
        if header.strip().isdecimal():
            return float(header)
        at = parsedate_to_datetime(header)
        return max(0.0, (at - datetime.now(at.tzinfo)).total_seconds())
    return 0.0
