"""Real servers and real sockets: keys, noise, a server that stalls, one that is killed again and again."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq

from sestina.core.errors import RunDirError, UserError
from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex
from sestina.drafting.service.client import DraftClient, shard_of
from sestina.drafting.service.keys import CLIENT_FILE, make_keys, read_client_keys, read_server_keys
from sestina.drafting.service.process import COMMAND, ServerError, ServerProcess
from sestina.drafting.service.settings import ClientSettings, ServerSettings, StoreSettings
from sestina.drafting.service.wire import MAX_FRAME_BYTES, NO_ROWS, Answer, Ask, Refusal, decode_reply, encode
from tests.unit.drafting.service.helpers import tokens
from tests.unit.drafting.service.test_sync import compare

VOCAB = 64
LIMIT_S = 30.0


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path)
    return tmp_path


@pytest.fixture
def servers(keys):
    """Start servers; returns them by number, to be ended with the test."""
    started = []

    def start(port=0, **settings):
        store = StoreSettings(vocab_size=VOCAB, **settings)
        started.append(ServerProcess.start(ServerSettings(keys=str(keys), port=port, store=store)))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture
def clients(keys):
    opened = []

    def connect(*addresses, folder=keys, **index_settings):
        index = SuffixIndex(IndexSettings(vocab_size=VOCAB, depth=8, **index_settings))
        times = ClientSettings(period_s=0.002, reply_limit_s=0.2)
        opened.append(DraftClient(index, times))
        opened[-1].connect(addresses, read_client_keys(folder))
        return index, opened[-1]

    yield connect
    for client in opened:
        client.close()


def pump_until(done, *clients, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, [(client.counts, client.server_counts) for client in clients]
        for client in clients:
            client.pump(time.monotonic())
        time.sleep(0.0005)


def append(client, handle, offset, new):
    row = tokens(*new)
    client.append(np.array([handle]), np.array([offset]), np.array([0, len(row)]), row)


def port_of(server):
    return int(server.address.rpartition(":")[2])


def test_responses_reach_the_drafts_of_another_instance_over_two_servers(servers, clients):
    addresses = [servers().address for _ in range(2)]
    assert {shard_of(group, 2) for group in range(8)} == {0, 1}
    (_, writer), (_, reader) = clients(*addresses), clients(*addresses)
    handles = {}
    for group in range(8):
        for client in (writer, reader):
            client.register_group(group, tokens(1, 2), 60.0)
        append(writer, writer.start_request(group, 0, tokens()), 0, [3, 4, 5 + group, 6])
        handles[group] = reader.start_request(group, 1, tokens(3, 4))

    def drafts():
        asked, most = np.array(list(handles.values())), np.full(8, 2, np.int32)
        return (
            [reader_drafts.draft(row).token_ids.tolist() for row in range(8)]
            if (reader_drafts := reader.draft(asked, most, DraftSettings()))
            else []
        )

    pump_until(lambda: drafts() == [[5 + group, 6] for group in range(8)], writer, reader)
    assert [counts["groups"] for counts in reader.server_counts] == [
        sum(shard_of(group, 2) == number for group in range(8)) for number in range(2)
    ]


def raw_socket(context, address, secret=None, public=None, server=None):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    if server:
        socket.curve_secretkey, socket.curve_publickey = secret, public
        socket.curve_serverkey = server
    socket.connect(address)
    return socket


@pytest.mark.parametrize("lacks", ["the client key", "the server key", "every key"])
def test_a_peer_without_the_key_gets_nothing_and_is_counted(servers, clients, keys, lacks):
    server = servers()
    _, friend = clients(server.address)
    friend.register_group(0, tokens(1), 60.0)
    right, (other_public, other_secret) = read_server_keys(keys), zmq.curve_keypair()
    mine = read_client_keys(keys)
    with zmq.Context() as context:
        stranger = {
            "the client key": lambda: raw_socket(
                context, server.address, other_secret, other_public, right.public.encode()
            ),
            "the server key": lambda: raw_socket(
                context, server.address, mine.secret.encode(), mine.public.encode(), other_public
            ),
            "every key": lambda: raw_socket(context, server.address),
        }[lacks]()
        stranger.send(encode(Ask(1, [], b"", NO_ROWS)))
        pump_until(lambda: friend.server_counts[0].get("refused_peers", 0) > 0, friend)
        assert stranger.poll(100) == 0
        stranger.close()
    assert friend.server_counts[0].get("malformed_frames", 0) == 0


def test_noise_from_a_peer_with_the_key_is_answered_with_an_error(servers, clients, keys):
    server = servers()
    mine = read_client_keys(keys)
    with zmq.Context() as context:
        peer = raw_socket(
            context, server.address, mine.secret.encode(), mine.public.encode(), mine.server_public.encode()
        )
        for parts in ([b"noise"], [b""], [b"a", b"b"], [encode(Ask(1, [], b"", NO_ROWS))]):
            peer.send_multipart(parts)
            assert peer.poll(LIMIT_S * 1000)
            kind = Answer if len(parts[0]) > 6 else Refusal
            reply = decode_reply(peer.recv())
            assert isinstance(reply, kind)
        assert reply.counters["malformed_frames"] == 3
        peer.send(bytes(MAX_FRAME_BYTES + 1))
        assert peer.poll(200) == 0
        peer.close()
    _, friend = clients(server.address)
    friend.register_group(0, tokens(1), 60.0)
    pump_until(lambda: friend.server_counts[0].get("groups") == 1, friend)


def test_a_server_that_stalls_stops_nothing_and_is_told_later(servers, clients):
    server = servers()
    (index, writer), (reader_index, reader) = clients(server.address), clients(server.address)
    for client in (writer, reader):
        client.register_group(0, tokens(1), 60.0)
    handle = writer.start_request(0, 0, tokens())
    pump_until(lambda: all(each.server_counts[0].get("groups") for each in (writer, reader)), writer, reader)
    os.kill(server.pid, signal.SIGSTOP)
    said = [number % 7 for number in range(600)]
    for number, token in enumerate(said):
        append(writer, handle, number, [token])
        assert len(writer.draft(np.array([handle]), np.array([4], np.int32), DraftSettings()).token_ids) == 4
        writer.pump(time.monotonic())
        time.sleep(0.001)
    pump_until(lambda: writer.counts["lost_exchanges"] >= 1, writer)
    assert writer.num_unsent_tokens == len(said)
    os.kill(server.pid, signal.SIGCONT)
    pump_until(lambda: reader_index.num_tokens(0) == 1 + len(said), writer, reader)
    assert index.num_tokens(0) == 1 + len(said)


def killed_and_restarted(servers, clients, num_tokens, kills, chunk):
    """Four clients say `num_tokens` in all while the server is killed; in the end each has all of it."""
    groups = 8
    server = servers()
    port, address = port_of(server), server.address
    sides = [clients(address) for _ in range(4)]
    rng = np.random.default_rng(0)
    per_request = num_tokens // (groups * len(sides))
    texts = {
        (group, side): rng.integers(0, VOCAB, per_request).tolist() for group in range(groups) for side in range(4)
    }
    handles = np.empty((len(sides), groups), np.int64)
    for group, side in texts:
        sides[side][1].register_group(group, tokens(1, 2, 3), 600.0)
        handles[side, group] = sides[side][1].start_request(group, side, tokens())
    columns = [np.array([texts[group, side] for group in range(groups)], np.int32) for side in range(4)]
    bounds = np.arange(groups + 1) * chunk
    starts = range(0, per_request, chunk)
    deaths = {len(starts) * (kill + 1) // (kills + 1) for kill in range(kills)}
    for number, start in enumerate(starts):
        if number in deaths:
            os.kill(server.pid, signal.SIGKILL)
            server = servers(port)
        for side, (_, client) in enumerate(sides):
            row = np.ascontiguousarray(columns[side][:, start : start + chunk]).reshape(-1)
            client.append(handles[side], np.full(groups, start), bounds, row)
            client.pump(time.monotonic())
    everything = 3 + per_request * len(sides)
    pump_until(
        lambda: all(index.num_tokens(group) == everything for index, _ in sides for group in range(groups)),
        *(client for _, client in sides),
        limit_s=120.0,
    )
    for index, client in sides:
        assert client.num_unsent_tokens == 0
        for group in range(groups):
            compare(index, group, {side: texts[group, side] for side in range(len(sides))})
    return sides


def test_nothing_is_lost_with_the_server_killed_while_all_append(servers, clients):
    sides = killed_and_restarted(servers, clients, num_tokens=32_000, kills=4, chunk=4)
    assert sum(client.counts["tokens_taken_over"] for _, client in sides) == 3 * 32_000


@pytest.mark.slow
def test_nothing_is_lost_with_the_server_killed_20_times_during_a_million_appends(servers, clients):
    sides = killed_and_restarted(servers, clients, num_tokens=1_048_576, kills=20, chunk=1)
    assert sum(client.counts["tokens_taken_over"] for _, client in sides) == 3 * 1_048_576


def test_a_server_ends_with_its_stdin_and_with_its_parent(servers, keys):
    server = servers()
    for number in (signal.SIGINT, signal.SIGTERM):  # which SLURM and terminals send to all
        os.kill(server.pid, number)
    assert server.end() == 0
    line = json.dumps({"keys": str(keys), "store": {"vocab_size": 5}})
    script = f"""
import subprocess, sys, os
process = subprocess.Popen({COMMAND!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdin.write({line!r}.encode() + b"\\n"); process.stdin.flush()
process.stdout.readline()
print(process.pid, flush=True)
os.read(0, 1)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([COMMAND[0], "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.stdin.write(b"x")
        parent.stdin.flush()
        parent.wait(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "settings",
    [
        ServerSettings(keys="/nowhere", store=StoreSettings(vocab_size=5)),
        msgspec.structs.replace(ServerSettings(keys="", store=StoreSettings(vocab_size=5)), store=None),
    ],
)
def test_a_server_that_cannot_begin_says_so(settings, capfd):
    with pytest.raises(ServerError, match="exit code 2 before it served"):
        ServerProcess.start(settings)
    assert "draft server" in capfd.readouterr().err


@pytest.mark.parametrize("line", [b"", b"{}\n", b'{"keys": "k", "store": {"vocab_size": 0}}', b"[" * 5000])
def test_settings_that_are_none(line):
    with pytest.raises(UserError, match=f"settings of {len(line)} bytes"):
        ServerSettings.from_line(line)


def test_keys_are_for_one_user(keys):
    path = keys / CLIENT_FILE
    assert (path.stat().st_mode & 0o777, len(list(keys.iterdir()))) == (0o600, 2)
    before = read_client_keys(keys)
    make_keys(keys)
    assert read_client_keys(keys) != before
    path.chmod(0o640)
    with pytest.raises(RunDirError, match="mode 0640"):
        read_client_keys(keys)
    path.chmod(0o600)
    path.write_text('{"public": "a", "secret": "b", "server_public": "c"}')
    with pytest.raises(RunDirError, match="40 characters"):
        read_client_keys(keys)
    path.unlink()
    with pytest.raises(RunDirError, match=str(path)):
        read_client_keys(keys)


def test_without_servers_a_client_drafts_from_what_is_decoded_here(clients):
    _, client = clients()
    client.register_group(0, tokens(1), 60.0)
    handle = client.start_request(0, 0, tokens(2, 3, 2))
    client.pump(0.0)
    assert client.draft(np.array([handle]), np.array([1], np.int32), DraftSettings()).token_ids.tolist() == [3]
