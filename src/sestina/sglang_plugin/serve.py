"""Starts an SGLang server whose every process ends with its parent: `python -m sestina.sglang_plugin.serve ARGUMENTS`.

SGLang spawns its own processes, and each imports this module first: what must be there before SGLang is put there.
"""

# pyright: reportMissingImports=false

import importlib.metadata
import os
import signal
import sys
from typing import NoReturn

from sestina.kvpool.mooncake import PACKAGE
from sestina.rollout.sglang import ON_CPU, SUPPORTED
from sestina.rollout.sglang.drafting import ENVIRONMENT
from sestina.rollout.sglang.pool import ENVIRONMENT as POOL
from sestina.transport.parent import end_with_parent

if os.environ.get(ON_CPU) == "1":
    from sestina.sglang_plugin import standins

    standins.install()

# Each process asks for itself: a scheduler whose server is gone would spin for ever.
end_with_parent()
# SLURM sends SIGTERM to every process of a job before it takes nodes back, when chunks are still to be given back.
# Blocked, not ignored: SGLang's front has a handler of its own.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def main() -> None:
    """Serve until killed; exits with 2 when this is not the SGLang that was asked for."""
    try:
        found = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        _refuse("has no SGLang")
    else:
        if found != SUPPORTED:
            _refuse(f"has SGLang {found}")
    if ENVIRONMENT in os.environ:
        _check_index()
    if POOL in os.environ:
        _check_store()

    from sglang.launch_server import run_server  # noqa: PLC0415 - only the first process serves
    from sglang.srt.plugins import load_plugins  # noqa: PLC0415
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415
    from sglang.srt.utils import kill_process_tree  # noqa: PLC0415

    load_plugins()
    try:
        run_server(prepare_server_args(sys.argv[1:]))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _check_index() -> None:
    try:
        import sestina.drafting.index  # noqa: F401, PLC0415 - whether this Python can load what another has built
    except ImportError as error:
        sys.stderr.write(
            f"{sys.executable} cannot load Sestina's suffix index ({error}); with drafts SGLang's Python must be of "
            "the version that Sestina is built for; set rollout.engine.python, or draft=none\n"
        )
        sys.exit(2)


def _check_store() -> None:
    try:
        import mooncake.store  # noqa: F401, PLC0415 - whether it is there, and loads
    except ImportError as error:
        sys.stderr.write(
            f"{sys.executable} cannot load Mooncake ({error}); rollout.kv_pool.kind 'mooncake' needs {PACKAGE} in "
            "the environment of rollout.engine.python too, and libibverbs1 of the system\n"
        )
        sys.exit(2)


def _refuse(what: str) -> NoReturn:
    sys.stderr.write(
        f"{sys.executable} {what}; this version of Sestina needs SGLang {SUPPORTED}; set rollout.engine.python\n"
    )
    sys.exit(2)


if __name__ == "__main__":
    main()
