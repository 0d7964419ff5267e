"""Who may talk to a server: peers with the run's client key. All others get nothing and are counted."""

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from sestina.drafting.service.keys import ServerKeys

DOMAIN = b"draft"
REFUSALS = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
_ADDRESS = "inproc://zeromq.zap.01"


class Gate:
    """Asks a connecting peer for the client key (ZeroMQ's ZAP), and counts those that are turned away."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", keys: ServerKeys) -> None:
        """Must be open before the server's socket is bound."""
        self._client_key = z85.decode(keys.client_public.encode())
        self.asked = context.socket(zmq.REP)
        self.asked.linger = 0
        self.asked.bind(_ADDRESS)
        self.num_refused = 0

    def guard(self, socket: "zmq.Socket[bytes]", keys: ServerKeys) -> "zmq.Socket[bytes]":
        """Set a socket up so that it admits nobody else; returns the socket that tells of those turned away."""
        socket.curve_server = True
        socket.curve_secretkey = keys.secret.encode()
        socket.curve_publickey = keys.public.encode()
        socket.zap_domain = DOMAIN
        return socket.get_monitor_socket(int(REFUSALS))

    def decide(self) -> None:
        """Answer one question of the library's."""
        version, number, *_, mechanism, key = self.asked.recv_multipart()
        admitted = mechanism == b"CURVE" and key == self._client_key
        status = (b"200", b"OK") if admitted else (b"400", b"not this run's key")
        self.asked.send_multipart([version, number, *status, b"", b""])

    def count(self, monitor: "zmq.Socket[bytes]") -> None:
        """Take note of one peer turned away."""
        self.num_refused += bool(parse_monitor_message(monitor.recv_multipart())["event"] & REFUSALS)
