"""A draft server's process.

    python -m sestina.drafting.server

Reads its settings (service/settings.py, ServerSettings) as one line of JSON from stdin, says {"address": "tcp://..."}
as one line on stdout, and ends when stdin ends and, on Linux, when its parent does.
"""

import signal
import sys
import time
from pathlib import Path

import msgspec

from sestina.core.errors import SestinaError
from sestina.drafting.service.keys import read_server_keys
from sestina.drafting.service.loop import ServerLoop
from sestina.drafting.service.settings import ServerSettings
from sestina.transport.parent import end_with_parent

MAX_LINE_BYTES = 1 << 16


def main() -> int:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which decides what becomes of its servers.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM sends it to all of a job before it takes nodes back.
    end_with_parent()
    try:
        settings = ServerSettings.from_line(sys.stdin.buffer.readline(MAX_LINE_BYTES))
        # Groups of a server that takes another's place are told from that one's by their epochs.
        loop = ServerLoop(settings, read_server_keys(Path(settings.keys)), first_epoch=time.time_ns())
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.buffer.write(msgspec.json.encode({"address": loop.address}) + b"\n")
    sys.stdout.buffer.flush()
    loop.serve(sys.stdin.buffer)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
