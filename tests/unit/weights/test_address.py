import socket

import pytest

from sestina.core.errors import UserError
from sestina.weights import address
from sestina.weights.address import node_address


def test_one_node_needs_no_address_but_its_own():
    assert node_address(None, shared=False) == "127.0.0.1"
    assert node_address("lo", shared=False) == "127.0.0.1"


def test_an_interface_that_is_not_there_is_named_beside_those_that_are():
    with pytest.raises(UserError, match=r"cluster.interface: .* has no 'ib7' .*; it has .*lo"):
        node_address("ib7", shared=True)


def test_an_address_that_leads_other_nodes_to_themselves_is_refused(monkeypatch):
    """As where a distribution lets the host's name stand for 127.0.1.1."""
    monkeypatch.setattr(address.socket, "gethostbyname", lambda _: "127.0.1.1")
    with pytest.raises(UserError, match="has the address 127.0.1.1, which no other node reaches"):
        node_address(None, shared=True)


def test_a_node_whose_name_has_no_address_is_named(monkeypatch):
    def fail(_):
        raise socket.gaierror("unknown")

    monkeypatch.setattr(address.socket, "gethostbyname", fail)
    with pytest.raises(UserError, match=r"name has no address \(unknown\); set cluster.interface"):
        node_address(None, shared=True)
