"""The address of this node at which other nodes reach it."""

import ipaddress
import socket

from sestina.core.errors import UserError

LOCAL = "127.0.0.1"


def node_address(interface: str | None, *, shared: bool) -> str:
    """Return the IPv4 address of an interface, or of the node's name; `shared`: other nodes must reach it.

    Raises UserError when there is none, or one that leads other nodes to themselves.
    """
    if not shared and interface is None:
        return LOCAL
    host = socket.gethostname()
    found = _of_interface(interface, host) if interface else _of_name(host)
    if shared and ipaddress.ip_address(found).is_loopback:
        raise UserError(
            f"{host}: {interface or 'the name of the node'} has the address {found}, which no other node reaches; "
            "set cluster.interface to the interface between the nodes"
        )
    return found


def _of_interface(interface: str, host: str) -> str:
    import psutil  # noqa: PLC0415 - only where an interface is named

    known = psutil.net_if_addrs()
    for address in known.get(interface, ()):
        if address.family is socket.AF_INET:
            return address.address
    raise UserError(f"cluster.interface: {host} has no {interface!r} with an IPv4 address; it has {', '.join(known)}")


def _of_name(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise UserError(f"{host}: the node's own name has no address ({error}); set cluster.interface") from None
