"""Isolation by Linux namespaces, without a tool: see launcher.py."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launcher.py")


def command(
    inner: Sequence[str], *, binds: Sequence[str], environment: Mapping[str, str], disk_bytes: int, max_files: int
) -> list[str]:
    """Return what runs `inner` isolated."""
    call = {
        "command": inner,
        "binds": binds,
        "environment": environment,
        "disk_bytes": disk_bytes,
        "max_files": max_files,
    }
    return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(call)]
