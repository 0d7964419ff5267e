"""One program in a sandbox: started with limits, its streams within bounds, its end."""

import contextlib
import json
import os
import subprocess
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
KEPT_CHARACTERS = 300
"""Of what a program wrote to stderr, for the reason."""

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
            watch = self._watch([started.program])
            assert started.program.stdout
            watch.hear(started.program.stdout.fileno())
            met = watch.until_end(limit_s)
            return started.ended(met, watch)

    def test(self, response: str, tests: str, limit_s: Seconds) -> tuple[Ended, Ended]:
        """Run tests in one sandbox against functions in another; returns how response and tests ended.

        Raises SandboxError when one of them could not even begin.
        """
        asked, answers = os.pipe(), os.pipe()
        with contextlib.ExitStack() as stack:
            try:
                served = stack.enter_context(self._start("serve", response, asked[0], answers[1]))
                tested = stack.enter_context(self._start("test", tests, answers[0], asked[1]))
            finally:
                for descriptor in (*asked, *answers):
                    os.close(descriptor)
            watch = self._watch([served.program, tested.program])
            met = watch.until_end(limit_s)
            return served.ended(met, watch), tested.ended(met, watch)

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
        with os.fdopen(began, "rb") as signs, _in_memory(source.encode("utf-8", "surrogatepass")) as payload:
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
        inner = [self.python, "-I", "-B", "-c", INSIDE, role, json.dumps(settings)]
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

    def ended(self, met: Met | None, watch: Watch) -> Ended:
        assert self.program.stderr
        stderr = watch.received[self.program.stderr.fileno()].decode(errors="replace").strip()[-KEPT_CHARACTERS:]
        if not self.signs.read(1):
            raise SandboxError(f"exit code {self.program.returncode} before a program began: {stderr or 'no word'}")
        stdout = bytes(watch.received[self.program.stdout.fileno()]) if self.program.stdout else b""
        return Ended(met=met, code=self.program.returncode, stdout=stdout, stderr=stderr)


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
