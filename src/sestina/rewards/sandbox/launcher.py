"""Builds namespaces around a command and waits for it; a script of the standard library alone, started by its path.

    python -I launcher.py '{"command": [...], "environment": {...}, "binds": [...], ...}'

Four processes: this one writes the ids that the second, in its user namespace, is known by; that one builds the root;
the third is process 1 of the process namespace, gives up every privilege and reaps; the fourth is the command. Whatever
ends one of them ends those after it. The exit status is the command's, 128 + n for signal n.
"""

import ctypes
import json
import os
import select
import signal
import struct
import sys
from typing import Any, NoReturn

NOBODY = 65534
"""Whom the command runs as, inside; outside it is the user of the run, or nobody where that is root."""

CLONE_ALL = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000
"""Namespaces of users, mounts, processes, network, IPC, host name and control groups."""
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 1 << 14, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 24, 38, 47
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITIES_V3 = 0x20080522
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_READ_ONLY_NO_SUID_NO_DEV = 1 | 2 | 4
_USER_NAMESPACES = "/proc/sys/user/max_user_namespaces"
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)
_Call = dict[str, Any]


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _checked(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def _fork() -> tuple[int, int]:
    """Fork; returns the child's id, 0 in the child, and one end each of a pipe that ends with the parent."""
    ours, parents = os.pipe()
    child = os.fork()
    os.close(ours if child else parents)
    return child, parents if child else ours


def _end_with_parent(pipe: int | None = None) -> None:
    """Have the kernel end this process with its parent, or end it here where `pipe` says that it was too late."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl PDEATHSIG")
    if pipe is not None:
        poll = select.poll()
        poll.register(pipe, 0)  # That the other end is closed is told unasked.
        if poll.poll(0):
            os._exit(1)
        os.close(pipe)


def _bind(path: str) -> None:
    """Show a file or directory of the old root in the new one, read-only with all that is mounted below."""
    source = f"/old{path}"
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(source, path, None, _MS_BIND | _MS_REC)
    if path not in _DEVICES:
        attributes = struct.pack("QQQQ", _READ_ONLY_NO_SUID_NO_DEV, 0, 0, 0)
        result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, attributes, len(attributes))
        _checked(result, f"mount_setattr {path} (Linux 5.12 has it)")


def _build_root(call: _Call) -> None:
    """Make an empty root that holds what is bound, five devices and a private /tmp; mutates the mount namespace."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
    os.mkdir("/tmp/old")
    _checked(_libc.pivot_root(b"/tmp", b"/tmp/old"), "pivot_root")
    os.chdir("/")
    os.umask(0o022)
    os.mkdir("/tmp")
    limits = f"mode=0700,uid={NOBODY},gid={NOBODY},size={call['disk_bytes']},nr_inodes={call['max_files']}"
    _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, limits)
    for path in (*call["binds"], *_DEVICES):
        _bind(path)
    for path in _LINKED:
        if os.path.islink(f"/old{path}") and not os.path.lexists(path):
            os.symlink(os.readlink(f"/old{path}"), path)
    _checked(_libc.umount2(b"/old", _MNT_DETACH), "umount /old")
    os.rmdir("/old")
    _mount("none", "/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _give_up_privileges(*, root: bool) -> None:
    """Be nobody without a capability, now and after any exec; mutates this process."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # Beyond the last one that this kernel knows.
    _checked(_libc.prctl(_PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl AMBIENT")
    if root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header, none = struct.pack("Ii", _CAPABILITIES_V3, 0), struct.pack("6I", *[0] * 6)
    _checked(_libc.capset(header, none), "capset")
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


def _run(call: _Call, parent: int) -> NoReturn:
    """Be process 1: start the command and reap all there is until it ends; the kernel then ends the others."""
    os.setsid()  # Out of the launcher's process group, which kill(0, ...) would reach.
    _give_up_privileges(root=call["root"])
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl DUMPABLE")  # Nothing inside may trace it.
    _end_with_parent(parent)
    child = os.fork()
    if not child:
        os.setsid()
        os.execve(call["command"][0], call["command"], call["environment"])
    for descriptor in (0, 1):  # Held open, they would keep the other side from seeing the command's end.
        os.close(descriptor)
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(_code(status))


def _build(call: _Call, parent: int, unshared: int, mapped: int) -> NoReturn:
    """Enter the namespaces, wait to be mapped, build the root, start process 1."""
    _end_with_parent(parent)
    _checked(_libc.unshare(CLONE_ALL), "unshare")
    os.write(unshared, b".")
    if not os.read(mapped, 1):
        sys.exit(1)
    with open(_USER_NAMESPACES, "w") as limit:  # Of this namespace: nobody inside may become root of another one.
        limit.write("0")
    _checked(_libc.sethostname(b"sandbox", 7), "sethostname")
    _build_root(call)
    child, pipe = _fork()
    if not child:
        _run(call, pipe)
    for descriptor in (0, 1):
        os.close(descriptor)
    os._exit(_code(os.waitpid(child, 0)[1]))


def _map(pid: int, *, root: bool) -> None:
    """Say who the users of a new namespace are outside."""
    ids = [(0, 0, 1), (NOBODY, NOBODY, 1)] if root else None
    for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
        if name == "gid_map" and not root:
            _write(pid, "setgroups", "deny")
        lines = ids or [(NOBODY, own, 1)]
        _write(pid, name, "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines))


def _write(pid: int, name: str, text: str) -> None:
    with open(f"/proc/{pid}/{name}", "w") as file:
        file.write(text)


def _code(status: int) -> int:
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main() -> int:
    """Run the command described by the one argument; returns its exit status."""
    call: _Call = json.loads(sys.argv[1])
    call["root"] = os.geteuid() == 0
    _end_with_parent()
    unshared, mapped = os.pipe(), os.pipe()
    child, pipe = _fork()
    if not child:
        os.close(mapped[1])
        _build(call, pipe, unshared[1], mapped[0])
    os.close(unshared[1])
    if os.read(unshared[0], 1):
        _map(child, root=call["root"])
        os.write(mapped[1], b".")
    for descriptor in (0, 1):
        os.close(descriptor)
    return _code(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
