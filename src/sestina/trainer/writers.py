"""The process that collects what Megatron's checkpoint writers report, made to end with its trainer rank.

Megatron starts it with the first checkpoint and leaves it to Python to end it. A killed rank leaves it behind for ever,
with the rank's output still open: SLURM waits a minute for that before it notices that the rank has died.
"""

import multiprocessing
import signal
from multiprocessing.managers import SyncManager

from sestina.transport.parent import end_with_parent


def tie_writers() -> None:
    """Start that process, once; called before the first checkpoint is saved."""
    from megatron.core.dist_checkpointing.strategies import filesystem_async  # noqa: PLC0415 - not in the process itself

    if filesystem_async._results_queue is None:
        manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
        manager.start(_end_with_parent)
        filesystem_async._results_queue = manager.Queue()


def _end_with_parent() -> None:
    """SIGTERM reaches every process of a job before its nodes are taken back; the rank still has to save then."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
