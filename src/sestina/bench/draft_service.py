"""The draft service on loopback: round trips of an update with a fetch, and how fast a client catches up.

64 groups of 16 responses on one server, two clients as of two instances. A round trip is one frame of update_cst and
fetch_cst of all groups, and its reply taken into the index; in some of the groups, some responses of each client have
said ROW tokens more since the last.
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from sestina.bench.asked import below, stated
from sestina.bench.turns import Say
from sestina.core.errors import DeadlineError
from sestina.core.units import Seconds
from sestina.drafting.index import IndexSettings, SuffixIndex
from sestina.drafting.service.client import DraftClient
from sestina.drafting.service.keys import make_keys, read_client_keys
from sestina.drafting.service.process import ServerProcess
from sestina.drafting.service.settings import ClientSettings, ServerSettings, StoreSettings
from sestina.telemetry.measurements import Figure

VOCAB = 32768
GROUPS, RESPONSES = 64, 16
ROW = 4
"""Tokens of a response in one exchange: a few engine steps."""
WARM_UP, ROUND_TRIPS = 50, 2000
ALL_ROUND_TRIPS = 300
CATCH_UP_TOKENS = 1000
"""Of each response, when a client begins late."""
WAIT_S, LIMIT_S = 0.001, 30.0
MOST_MS = 0.5


class Side:
    """One instance: a client of which each group's responses `of` run here."""

    def __init__(self, address: str, keys: Path, of: range) -> None:
        self.index = SuffixIndex(IndexSettings(vocab_size=VOCAB))
        self.client = DraftClient(self.index, ClientSettings(period_s=0.0))
        self.client.connect([address], read_client_keys(keys))
        self._rng = np.random.default_rng(of.start)
        none, prompt = np.empty(0, np.int32), np.arange(100, dtype=np.int32)
        for group in range(GROUPS):
            self.client.register_group(group, prompt, 3600.0)
        started = [[self.client.start_request(group, request, none) for request in of] for group in range(GROUPS)]
        self._handles = np.array(started, np.int64).reshape(GROUPS, len(of))
        self._said = np.zeros(self._handles.shape, np.int64)

    def say(self, groups: slice, column: slice, num_tokens: int) -> None:
        """Append tokens to these responses of these groups."""
        handles, offsets = self._handles[groups, column].ravel(), self._said[groups, column].ravel()
        new = np.minimum(self._rng.zipf(1.3, len(handles) * num_tokens), VOCAB - 1).astype(np.int32)
        self.client.append(handles, offsets, np.arange(len(handles) + 1) * num_tokens, new)
        self._said[groups, column] += num_tokens

    @property
    def num_tokens(self) -> int:
        """Tokens in the index."""
        return sum(self.index.num_tokens(group) for group in range(GROUPS))

    def exchange(self) -> Seconds:
        """Send what is unsent and take in the reply; returns what it took."""
        start_s = time.perf_counter()
        before = self.client.num_replies
        while self.client.num_replies == before:
            self.client.pump(time.monotonic())
            self.client.wait(WAIT_S)
            if time.perf_counter() - start_s > LIMIT_S:
                raise DeadlineError("a reply of the draft server", LIMIT_S)
        return time.perf_counter() - start_s


def measure(say: Say) -> list[Figure]:
    """Take every figure."""
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder)
        make_keys(keys)
        server = ServerProcess.start(ServerSettings(keys=folder, store=StoreSettings(vocab_size=VOCAB)))
        try:
            return _measure(server.address, keys, say)
        finally:
            server.end()


def _measure(address: str, keys: Path, say: Say) -> list[Figure]:
    half = RESPONSES // 2
    sides = Side(address, keys, range(half)), Side(address, keys, range(half, RESPONSES))
    for side in sides:
        side.exchange()
    figures = _round_trips(sides, 1, 1, ROUND_TRIPS, say)
    figures += _round_trips(sides, GROUPS, 1, ROUND_TRIPS, say)
    figures += _round_trips(sides, GROUPS, half, ALL_ROUND_TRIPS, say)
    for side in sides:
        for _ in range(CATCH_UP_TOKENS // 100):
            side.say(slice(None), slice(None), 100)
            side.exchange()
    while any(side.client.num_unsent_tokens for side in sides):
        for side in sides:
            side.exchange()
    figures += _catch_up(address, keys, sides[0], say)
    for side in sides:
        side.client.close()
    return figures


def _round_trips(sides: tuple[Side, Side], groups: int, width: int, num: int, say: Say) -> list[Figure]:
    spans: list[float] = []
    for turn in range(WARM_UP + num):
        group, first = turn * groups % GROUPS, turn * width % (RESPONSES // 2)
        for side in sides:
            side.say(slice(group, group + groups), slice(first, first + width), ROW)
        sides[1].exchange()
        spans.append(sides[0].exchange() * 1e3)
    p50, p99 = statistics.median(spans[WARM_UP:]), float(np.percentile(spans[WARM_UP:], 99))
    name = f"update and fetch of {GROUPS} groups, {groups * width} responses said more"
    say(f"{name}: p50 {p50:.3f} ms, p99 {p99:.3f} ms")
    return [
        below(f"{name}: p50 of {num}", p50, "ms", MOST_MS) if width == 1 else stated(f"{name}: p50", p50, "ms"),
        stated(f"{name}: p99", p99, "ms"),
        stated(f"{name}: least", min(spans), "ms"),
    ]


def _catch_up(address: str, keys: Path, whole: Side, say: Say) -> list[Figure]:
    whole.exchange()
    rates: list[float] = []
    for _ in range(3):
        late = Side(address, keys, range(0))
        start_s, num_tokens = time.perf_counter(), late.num_tokens
        while late.num_tokens < whole.num_tokens:
            late.exchange()
        rates.append((late.num_tokens - num_tokens) / (time.perf_counter() - start_s) / 1e6)
        late.client.close()
    name = f"a client that begins late, {whole.num_tokens / 1e6:.1f} M tokens"
    say(f"{name}: {statistics.median(rates):.2f} M tokens/s")
    return [
        stated(f"{name}: fetched and replayed, median of 3", statistics.median(rates), "M tokens/s"),
        stated(f"{name}: lowest", min(rates), "M tokens/s"),
    ]
