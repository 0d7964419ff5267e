"""One worker process as its parent sees it: started, asked, ended."""

import asyncio
import codecs
import contextlib
import os
import signal
import sys
from typing import Self

from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.rewards.messages import LENGTH_BYTES, Answer, answer
from sestina.transport.parent import environment

STDIN, STDERR = 0, 2
COMMAND = (sys.executable, "-m", "sestina.rewards.worker")

LEAVE_LIMIT_S = 2.0
"""For a worker asked to leave, before it is killed."""
KILL_LIMIT_S = 10.0
"""For a killed worker to be gone."""
STDERR_LIMIT_S = 1.0
"""For the last words of a worker that is gone; a process that escaped its group may hold the pipe open."""

TAIL_CHARACTERS = 4000
"""Kept of what a worker wrote to stderr."""


class WorkerProcess(asyncio.SubprocessProtocol):
    """A process that answers questions one at a time; leads a process group, so that what it started ends with it.

    A protocol rather than asyncio's Process, whose wait() lasts until every pipe is closed: a process started by user
    code may keep them open. What the worker writes to stderr is passed on.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._stderr_ended: asyncio.Future[None] = loop.create_future()
        self._answer: asyncio.Future[bytes | None] = loop.create_future()
        self._received = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stderr_tail = ""

    @classmethod
    async def spawn(cls) -> Self:
        """Start a process."""
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(cls, *COMMAND, env=environment(), process_group=0)
        return process

    async def ask(self, frame: bytes, limit_s: Seconds) -> Answer:
        """Return the answer to a frame.

        Raises TimeoutError when it does not come in time, EOFError when the process ends first.
        """
        if self._exited.done():
            raise EOFError
        self._answer = asyncio.get_running_loop().create_future()
        self._stdin.write(frame)
        # Not asyncio.timeout: after a stall of the loop it would call an answer late that has long been in the pipe.
        await asyncio.wait({self._answer}, timeout=limit_s)
        if not self._answer.done():
            raise TimeoutError
        body = self._answer.result()
        if body is None:
            raise EOFError
        return answer(body)

    async def end(self, first: signal.Signals) -> int:
        """Send `first`, then SIGKILL, to the process and what it started; returns its exit code.

        Raises DeadlineError when the kernel does not end it.
        """
        self._send(first)
        await asyncio.wait({self._exited}, timeout=LEAVE_LIMIT_S)
        self._send(signal.SIGKILL)
        await asyncio.wait({self._exited}, timeout=KILL_LIMIT_S)
        code = self._transport.get_returncode()
        if code is None:
            raise DeadlineError(f"reward worker {self._pid} to end after SIGKILL", KILL_LIMIT_S)
        await asyncio.wait({self._stderr_ended}, timeout=STDERR_LIMIT_S)
        self._transport.close()
        return code

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what ask and end need."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        pid, stdin = transport.get_pid(), transport.get_pipe_transport(STDIN)
        assert pid is not None
        assert isinstance(stdin, asyncio.WriteTransport)
        self._transport, self._pid, self._stdin = transport, pid, stdin

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass stderr on; gather an answer from stdout."""
        if fd == STDERR:
            text = self._decoder.decode(data)
            self.stderr_tail = (self.stderr_tail + text)[-TAIL_CHARACTERS:]
            sys.stderr.write(text)
            return
        self._received += data
        end = LENGTH_BYTES + int.from_bytes(self._received[:LENGTH_BYTES], "little")
        if LENGTH_BYTES < end <= len(self._received):
            body = bytes(self._received[LENGTH_BYTES:end])
            del self._received[:end]
            self._settle(body)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that stderr has ended."""
        if fd == STDERR:
            self._stderr_ended.set_result(None)

    def process_exited(self) -> None:
        """Tell whoever waits for an answer or for the end."""
        self._exited.set_result(None)
        self._settle(None)

    def _settle(self, body: bytes | None) -> None:
        if not self._answer.done():
            self._answer.set_result(body)
