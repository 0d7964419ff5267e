"""Isolation by bubblewrap (github.com/containers/bubblewrap), 0.8 or later."""

import os
import shutil
from collections.abc import Mapping, Sequence

from sestina.rewards.sandbox.launcher import NOBODY

_FIXED = (
    "--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --disable-userns "
    f"--uid {NOBODY} --gid {NOBODY} --hostname sandbox --die-with-parent --new-session --cap-drop ALL --clearenv"
).split()
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")


def command(
    inner: Sequence[str], *, binds: Sequence[str], environment: Mapping[str, str], disk_bytes: int, max_files: int
) -> list[str]:
    """Return what runs `inner` isolated; bubblewrap does not limit the number of files, their bytes it does."""
    del max_files
    arguments = [shutil.which("bwrap") or "bwrap", *_FIXED, "--size", str(disk_bytes), "--tmpfs", "/tmp"]
    for path in binds:
        arguments += ["--ro-bind", path, path]
    for path in _LINKED:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
    for name in _DEVICES:
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--remount-ro", "/", "--chdir", "/", "--", *inner]
