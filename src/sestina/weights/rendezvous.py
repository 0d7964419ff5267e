"""Key-value stores through which ranks find each other, bound to one address of this host."""

import socket
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from sestina.core.errors import DeadlineError, UserError
from sestina.core.units import Seconds


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A store and the address at which others connect to it."""

    store: dist.Store
    host: str
    port: int


def open_store(host: str, limit_s: Seconds) -> Rendezvous:
    """Start a store on a free port of the interface `host` names; waits on it end after `limit_s`.

    Raises UserError when this node has no such address.
    """
    try:
        listener = socket.create_server((host, 0))
    except OSError as error:
        raise UserError(f"weights.host: this node cannot be reached at {host!r}: {error.strerror}") from None
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=limit_s),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    return Rendezvous(store, host, port)


def connect_store(host: str, port: int, limit_s: Seconds) -> dist.Store:
    """Connect to a store another rank has opened; raises DeadlineError when it does not answer within `limit_s`."""
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=limit_s), wait_for_workers=False)
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        raise DeadlineError(f"the rendezvous at {host}:{port} ({error})", limit_s) from None
