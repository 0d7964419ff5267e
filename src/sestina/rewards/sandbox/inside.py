"""What runs first inside a sandbox: takes limits on, then runs a payload; a script of the standard library alone.

    python -s -P -c SOURCE ROLE '{"payload": FD, "status": FD, "limits": {...}, "memory_bytes": ...}'

`script`  executes the payload with what stdin and stdout are
`serve`   executes the payload, then answers calls of its functions: the side of the response
`test`    executes the payload, in which the names it does not define call the other side: the side of the tests

Calls and results cross as literals, so that nothing of the response's ever runs where its tests are.
"""

# ruff: noqa: ANN401 - what crosses may be anything

import ast
import builtins
import contextlib
import ctypes
import json
import math
import os
import resource
import sys
import traceback
from types import TracebackType
from typing import Any

_HELD = "memfd_create memfd_secret shmget msgget semget io_uring_setup userfaultfd"
_USELESS = (
    "bpf perf_event_open keyctl add_key request_key ptrace process_vm_readv process_vm_writev mount umount2 pivot_root "
    "chroot unshare setns move_mount fsopen open_tree kexec_load init_module finit_module delete_module"
)
DENIED = (*_HELD.split(), *_USELESS.split())
"""System calls by which memory is held that no limit counts, or that no program under test has a use for."""
_ERRNO_EPERM = 0x00050000 | 1
_ALLOW = 0x7FFF0000

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 1 << 24
_BRACKETS = {list: "[]", tuple: "()", set: "{}"}
MAX_DIGITS = 100_000
"""Of a whole number that crosses as text; Python's own limit is 4300."""
FAILED = 3
"""Exit status of tests that failed, as opposed to tests that broke."""


class Refused(Exception):  # noqa: N818 - named for the tests' traceback
    """What a call returned or raised cannot cross."""


def limit(settings: dict[str, Any]) -> None:
    """Take on resource limits and, where libseccomp is installed, a filter of system calls; mutates this process."""
    for name, value in settings["limits"].items():
        hard = value + 1 if name == "RLIMIT_CPU" else value
        resource.setrlimit(getattr(resource, name), (value, hard))
    with contextlib.suppress(OSError):  # Not installed: a second line of defence less.
        _filter(ctypes.CDLL("libseccomp.so.2"))
    # Last: loading a library needs memory too.
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory_bytes"], settings["memory_bytes"]))


def _filter(library: Any) -> None:
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))
    for name in DENIED:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            library.seccomp_rule_add_array(rules, _ERRNO_EPERM, number, 0, None)
    if library.seccomp_load(rules) < 0:
        sys.exit("seccomp_load failed")


def as_literal(value: Any) -> str:
    """Return a plain value as source text; raises Refused for any other."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        if math.isnan(value):
            raise Refused("a float that is not a number")
        return "1e999" if value > 0 else "-1e999"
    if kind in (int, float, bool, str, bytes, complex, type(None)):
        return repr(value)
    if kind in _BRACKETS and value != set():
        opening, closing = _BRACKETS[kind]
        return opening + "".join(f"{as_literal(item)}, " for item in value) + closing
    if kind is set:
        return "set()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_literal(key)}: {as_literal(item)}" for key, item in value.items()) + "}"
    if hasattr(value, "tolist") and type(plain := value.tolist()) is not kind:  # numpy's
        return as_literal(plain)
    raise Refused(f"a {kind.__name__}: only plain values cross between tests and response")


def _read_exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 16))
        if not part:
            raise EOFError("the other side ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send(descriptor: int, text: str) -> None:
    """Write a frame."""
    body = text.encode("utf-8", "surrogatepass")
    body = len(body).to_bytes(LENGTH_BYTES, "little") + body
    while body:
        body = body[os.write(descriptor, body) :]


def receive(descriptor: int) -> Any:
    """Read a frame as a literal; raises ValueError for one too long or none, EOFError at the end."""
    length = int.from_bytes(_read_exactly(descriptor, LENGTH_BYTES), "little")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} cross")
    return ast.literal_eval(_read_exactly(descriptor, length).decode("utf-8", "surrogatepass"))


def _take_streams() -> tuple[int, int]:
    """Move stdin and stdout to where nothing that is read or printed touches them; mutates file descriptors 0 and 1."""
    taken = os.dup(0), os.dup(1)
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    return taken


def serve(source: str) -> None:
    """Define what a response defines, then answer calls until they end."""
    asked, answers = _take_streams()
    names: dict[str, Any] = {"__name__": "response"}
    exec(compile(source, "response.py", "exec"), names)
    send(answers, "('ready',)")
    while True:
        try:
            name, arguments, keywords = receive(asked)
        except EOFError:
            return
        try:
            reply = f"('returned', {as_literal(_found(names, name)(*arguments, **keywords))})"
        except Exception as error:  # noqa: BLE001 - the tests decide what an exception means
            reply = repr(("raised", type(error).__name__, str(error)[:1000]))
        send(answers, reply)


def _found(names: dict[str, Any], name: str) -> Any:
    if name in names:
        return names[name]
    if "Solution" in names and hasattr(names["Solution"], name):
        return getattr(names["Solution"](), name)
    raise NameError(f"name {name!r} is not defined")


def _stand_in(name: str, answers: int, asked: int) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        send(asked, f"({name!r}, {as_literal(arguments)}, {as_literal(keywords)})")
        kind, *content = receive(answers)
        if kind == "returned":
            return content[0]
        error, text = content
        raised = getattr(builtins, str(error), None)
        if isinstance(raised, type) and issubclass(raised, Exception):
            raise raised(str(text))
        raise Refused(f"{error}: {text}")

    return call


def called(tree: ast.Module) -> set[str]:
    """Return the names that a test uses and neither it nor Python defines: those of the response."""
    used, defined = set(), set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).partition(".")[0])
    return used - defined


def as_json(value: Any) -> Any:
    """Return a value with tuples as lists, as JSON has them."""
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def test(source: str) -> None:
    """Run tests whose unknown names are the response's; leaves with FAILED at the first that does not hold."""
    sys.excepthook = _fail
    streams = _take_streams()
    assert receive(streams[0]) == ("ready",)
    for number, case in enumerate(json.loads(source)):
        _one(case, number, streams)


def _fail(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Say where the tests failed and leave at once: whatever they started is not waited for."""
    sys.stderr.write("".join(traceback.format_exception(kind, error, frames, limit=-1))[-1500:])
    sys.stderr.flush()
    os._exit(FAILED)


def _one(case: Any, number: int, streams: tuple[int, int]) -> None:
    if isinstance(case, dict) and "code" not in case:
        found = as_json(_stand_in(case["name"], *streams)(*case["arguments"]))
        assert found == case["expected"], f"test {number + 1} of {case['name']}"
        return
    code, named = (case["code"], {case["name"]}) if isinstance(case, dict) else (case, set())
    tree = ast.parse(code, f"test {number + 1}")
    names = {"__name__": "test"} | {name: _stand_in(name, *streams) for name in called(tree) | named}
    exec(compile(tree, f"test {number + 1}", "exec"), names)


def main() -> None:
    """Take on limits, say that they hold, then play the role."""
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    limit(settings)
    with os.fdopen(settings["payload"], encoding="utf-8", errors="surrogatepass") as file:
        source = file.read()
    os.write(settings["status"], b".")
    os.closerange(3, 256)
    os.chdir("/tmp")
    sys.argv = ["response.py"]
    sys.set_int_max_str_digits(MAX_DIGITS)
    if role == "script":
        sys.set_int_max_str_digits(0)
        exec(compile(source, "response.py", "exec"), {"__name__": "__main__"})
    else:
        {"serve": serve, "test": test}[role](source)


if __name__ == "__main__":
    main()
