"""One program in a sandbox: started with limits, its streams within bounds, its end."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from sestina.core.errors import RunError
from sestina.core.seconds import Seconds
from sestina.rewards.sandbox.watch import Met, Watch, end

Role: TypeAlias = Literal["script", "serve", "test"]
"""As in inside.py."""
Isolate: TypeAlias = Callable[..., list[str]]
"""`command` of bubblewrap.py or namespaces.py."""

INSIDE = Path(__file__).with_name("inside.py").read_text()
MAX_FILES = 4096
MAX_OPEN_FILES = 64
STACK_BYTES = 64 << 20
BEGIN_LIMIT_S: Seconds = 30.0
"""For a sandbox to be built and an interpreter to start in it; no program is charged for it."""
KEPT_CHARACTERS = 300
"""Of what a program wrote to stderr, for the reason."""
_MAX_COMPLAINT_BYTES = 1 << 20
"""Of a sandbox that does not come up."""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # The same response gets the same reward.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class SandboxError(RunError):
    """A sandbox could not be set up: no program ran, so none is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one sandbox."""

    cpu_s: int
    memory_bytes: int
    disk_bytes: int
    output_bytes: int
    max_processes: int

    def resources(self) -> dict[str, int]:
        """Return them as resource limits, but for the address space, which is taken on last."""
        return {
            "RLIMIT_CPU": self.cpu_s,  # SIGXCPU; a second later SIGKILL, as that can be ignored
            "RLIMIT_FSIZE": self.disk_bytes,
            "RLIMIT_NPROC": self.max_processes + 1,  # Process 1 counts too.
            "RLIMIT_NOFILE": MAX_OPEN_FILES,
            "RLIMIT_STACK": min(self.memory_bytes, STACK_BYTES),
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    met: Met | None
    """The limit that ended it and all it started; None: it ended by itself."""
    code: int
    stdout: bytes
    stderr: str
    """Its last words."""
    ran_s: Seconds
    """From its own beginning, without that of its sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Starts programs; holds nothing between them."""

    isolate: Isolate
    python: str
    binds: Sequence[str]
    """Shown inside, read-only."""
    limits: Limits
    user: int | None = None
    """Whom the isolating tool runs as; None: the caller."""

    def run(self, source: str, stdin: bytes, limit_s: Seconds) -> Ended:
        """Execute a script; raises SandboxError when it could not even begin."""
        with _in_memory(stdin) as given, self._start("script", source, given, subprocess.PIPE) as started:
            started.begin()
            watch = self._watch([started.program])
            assert started.program.stdout
            watch.hear(started.program.stdout.fileno())
            (ended,) = self._ended([started], watch, limit_s)
            return ended

    def test(self, response: str, tests: str, limit_s: Seconds) -> tuple[Ended, Ended]:
        """Run tests in one sandbox against functions in another; returns how response and tests ended.

        Raises SandboxError when one of them could not even begin.
        """
        asked, answers = os.pipe(), os.pipe()
        with contextlib.ExitStack() as stack:
            try:
                # The tests wait for the response, which so runs only where it is watched.
                tested = stack.enter_context(self._start("test", tests, answers[0], asked[1]))
                tested.begin()
                served = stack.enter_context(self._start("serve", response, asked[0], answers[1]))
                served.begin()
            finally:
                for descriptor in (*asked, *answers):
                    os.close(descriptor)
            watch = self._watch([served.program, tested.program])
            response_ended, tests_ended = self._ended([served, tested], watch, limit_s)
            return response_ended, tests_ended

    def _ended(self, started: Sequence["_Started"], watch: Watch, limit_s: Seconds) -> list[Ended]:
        since = time.monotonic()
        met = watch.until_end(limit_s)
        ran_s = time.monotonic() - since
        return [each.ended(met, watch, ran_s) for each in started]

    def _watch(self, programs: list[subprocess.Popen[bytes]]) -> Watch:
        limits = self.limits
        watch = Watch(programs, output_bytes=limits.output_bytes, memory_bytes=limits.memory_bytes)
        for program in programs:
            assert program.stderr
            watch.hear(program.stderr.fileno())
        return watch

    @contextlib.contextmanager
    def _start(self, role: Role, source: str, stdin: int, stdout: int) -> Iterator["_Started"]:
        began, status = os.pipe()
        with (
            os.fdopen(began, "rb", buffering=0) as signs,
            _in_memory(source.encode("utf-8", "surrogatepass")) as payload,
        ):
            try:
                program = subprocess.Popen(
                    self._command(role, payload=payload, status=status),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    pass_fds=(payload, status),
                    env={},
                    user=self.user,
                    group=self.user,
                    extra_groups=None if self.user is None else [],
                    start_new_session=True,
                )
            finally:
                os.close(status)
            with program:
                try:
                    yield _Started(program=program, signs=signs)
                finally:
                    end(program)

    def _command(self, role: Role, *, payload: int, status: int) -> list[str]:
        settings = {
            "payload": payload,
            "status": status,
            "limits": self.limits.resources(),
            "memory_bytes": self.limits.memory_bytes,
        }
        # Not -I: it would ignore PYTHONHASHSEED, and the environment is ours.
        inner = [self.python, "-s", "-P", "-B", "-c", INSIDE, role, json.dumps(settings)]
        return self.isolate(
            inner,
            binds=self.binds,
            environment=ENVIRONMENT,
            disk_bytes=self.limits.disk_bytes,
            max_files=MAX_FILES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A sandbox under way."""

    program: subprocess.Popen[bytes]
    signs: BinaryIO
    """Says a word when limits hold, before anything of the program runs."""

    def begin(self) -> None:
        """Wait until the program begins; raises SandboxError when it does not within BEGIN_LIMIT_S."""
        poll = select.poll()
        poll.register(self.signs, select.POLLIN)
        if not poll.poll(BEGIN_LIMIT_S * 1000):
            raise SandboxError(f"waited {BEGIN_LIMIT_S:g} s for a program to begin")
        if self.signs.read(1):
            return
        assert self.program.stderr
        watch = Watch([self.program], output_bytes=_MAX_COMPLAINT_BYTES, memory_bytes=sys.maxsize)
        watch.hear(self.program.stderr.fileno())
        watch.until_end(BEGIN_LIMIT_S)
        said = self._last_words(watch) or "no word"
        raise SandboxError(f"exit code {self.program.returncode} before a program began: {said}")

    def ended(self, met: Met | None, watch: Watch, ran_s: Seconds) -> Ended:
        stdout = bytes(watch.received[self.program.stdout.fileno()]) if self.program.stdout else b""
        stderr = self._last_words(watch)
        return Ended(met=met, code=self.program.returncode, stdout=stdout, stderr=stderr, ran_s=ran_s)

    def _last_words(self, watch: Watch) -> str:
        assert self.program.stderr
        return watch.received[self.program.stderr.fileno()].decode(errors="replace").strip()[-KEPT_CHARACTERS:]


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[int]:
    """Yield a file descriptor that reads `data`; inside, no path leads to it."""
    descriptor = os.memfd_create("data")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
