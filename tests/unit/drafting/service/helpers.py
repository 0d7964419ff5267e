"""Clients and a server as state machines, with a network between them that the test holds in its hands."""

import numpy as np

from sestina.drafting.index import IndexSettings, SuffixIndex
from sestina.drafting.service.correspondent import Correspondent
from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.responses import Responses
from sestina.drafting.service.settings import ClientSettings, StoreSettings
from sestina.drafting.service.store import DraftStore
from sestina.drafting.service.wire import encode

VOCAB = 50
PERIOD_S = 0.01
PATIENCE_S = 0.1


def tokens(*values):
    return np.array(values, np.int32)


def store_of(first_epoch=1, **settings):
    return DraftStore(StoreSettings(vocab_size=VOCAB, **settings), first_epoch=first_epoch)


class Client:
    """One engine process."""

    def __init__(self, **index_settings):
        settings = {"vocab_size": VOCAB, "depth": 6, **index_settings}
        self.index = SuffixIndex(IndexSettings(**settings))
        self.responses = Responses(self.index)
        times = ClientSettings(period_s=PERIOD_S, reply_limit_s=PATIENCE_S, full_pause_s=1.0)
        self.link = Correspondent(self.responses, times)
        self.handles = {}

    def register(self, group, prompt, ttl_s=1e6):
        self.responses.register_group(group, tokens(*prompt), ttl_s)
        self.link.include(group)

    def start(self, group, request, said=()):
        self.handles[group, request] = self.responses.start_request(group, request, tokens(*said))

    def append(self, group, request, offset, new):
        row = tokens(*new)
        handle = self.handles[group, request]
        self.responses.append(np.array([handle]), np.array([offset]), np.array([0, len(row)]), row)

    def stop(self, group, request):
        self.responses.stop_request(self.handles.pop((group, request)))


def exchange(client, store, now):
    """One exchange over a network that works; False when the client has nothing to ask."""
    client.responses.expire(now)
    frame = client.link.compose(now)
    if frame is None:
        return False
    client.link.receive(encode(reply_to(frame, store, now)), now)
    return True


def settle(clients, store, now, rounds=12):
    """Exchange until everybody has everything; returns the time then."""
    for _ in range(rounds):
        now += PATIENCE_S + PERIOD_S
        for client in clients:
            exchange(client, store, now)
    return now


def texts_of(index, group):
    """What an index holds of each response, and the order in which it came: (request, tokens) of each record."""
    log = index.fetch_since(group, 0)
    requests, pieces, at = [], [], 0
    starts = iter(log.starts[::2].tolist())
    for record in log.records.tolist():
        stream, size = record >> 16, record & 0xFFFF
        if size == 0:
            requests.append(next(starts))
        elif size != 0xFFFF:
            pieces.append((requests[stream], log.tokens[at : at + size].tolist()))
            at += size
    return requests, pieces
