"""The servers of a run: killed and started again where they were, given up when they cannot be started, ended."""

import logging
import os
import signal
import time

import psutil
import pytest

from sestina.drafting.service.keys import SERVER_FILE, make_keys
from sestina.drafting.service.settings import ServerSettings, StoreSettings
from sestina.drafting.service.shards import MAX_FAILURES, Shards

LIMIT_S = 60.0


@pytest.fixture
def shards(tmp_path):
    make_keys(tmp_path)
    opened = []

    def start(num_servers):
        opened.append(Shards(ServerSettings(keys=str(tmp_path), store=StoreSettings(vocab_size=5)), num_servers))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def wait_for(done):
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def servers():
    """Servers of this process, by the port that they listen at."""
    found = {}
    for child in psutil.Process().children():
        if "sestina.drafting.server" in child.cmdline():
            found |= {at.laddr.port: child.pid for at in child.net_connections() if at.status == psutil.CONN_LISTEN}
    return found


def port_of(address):
    return int(address.rpartition(":")[2])


def test_a_killed_server_is_started_again_where_it_was(shards):
    both = shards(2)
    wait_for(lambda: all(both.addresses))
    before = both.addresses
    os.kill(servers()[port_of(before[1])], signal.SIGKILL)
    wait_for(lambda: both.num_restarts == 1)
    assert both.addresses == before
    assert both.num_lost == 0
    assert sorted(servers()) == sorted(map(port_of, before))


def test_a_server_that_cannot_be_started_is_given_up_and_said(shards, tmp_path, caplog, capfd):
    (tmp_path / SERVER_FILE).unlink()
    with caplog.at_level(logging.WARNING):
        one = shards(1)
        wait_for(lambda: one.num_lost)
    assert (one.addresses, one.num_restarts) == (("",), 0)
    assert caplog.text.count("cannot be started") == MAX_FAILURES
    assert caplog.text.count("is given up") == 1
    assert SERVER_FILE in capfd.readouterr().err


def test_a_server_that_keeps_dying_is_given_up(shards):
    one = shards(1)
    for killed in range(MAX_FAILURES):
        wait_for(lambda killed=killed: one.addresses != ("",) and one.num_restarts == killed and servers())
        os.kill(next(iter(servers().values())), signal.SIGKILL)
    wait_for(lambda: one.num_lost)
    assert (one.addresses, one.num_restarts) == (("",), MAX_FAILURES - 1)


def test_closing_ends_all(shards):
    both = shards(2)
    wait_for(lambda: all(both.addresses))
    both.close()
    assert servers() == {}
    assert (both.num_restarts, both.num_lost) == (0, 0)
