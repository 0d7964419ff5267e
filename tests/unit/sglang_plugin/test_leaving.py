"""What a server does with chunks whose pages are on their way to the store, without SGLang."""

from types import SimpleNamespace

import pytest
import torch

from sestina.rollout.sglang.pool import LEFT
from sestina.rollout.sglang.reply import KV_LEFT
from sestina.sglang_plugin import leaving
from sestina.sglang_plugin.leaving import Leaving, Store
from sestina.sglang_plugin.standins import load_layer, store_layers

PAGE = 16
NO_ROOM, GONE = -200, -900


class Cache:
    """As SGLang counts what is under way: copies by node, writes by operation."""

    def __init__(self, look=None):
        self.ongoing_write_through, self.ongoing_backup, self.ongoing_load_back = {}, {}, {}
        self.check_hicache_events = look

    def copied(self, node, operation):
        del self.ongoing_write_through[node]
        self.ongoing_backup[operation] = node


class Server:
    """A scheduler's worth of SGLang: sends, writes, and looks at what has been written."""

    def __init__(self):
        self.store = Store()
        self.leaving = Leaving(self.store)
        self.cache = Cache()
        self.sent = []

    def send(self, *requests):
        self.leaving.send(self._send, SimpleNamespace(tree_cache=self.cache), list(requests), True)

    def _send(self, _streamer, requests, _return_logprob, _skip=None):
        for request in requests:
            request.finished_output = request.finished()
            self.sent.append(request.rid)

    def write(self, operation, codes):
        """SGLang's thread writes one page, and says so."""

        def page(_controller, written):
            assert self.store.put(lambda *_: codes, None, ["key"]) == codes
            written.completed_tokens = PAGE if min(codes) == 0 else 0

        work = SimpleNamespace(id=operation, completed_tokens=0, hash_value=["page"])
        self.store.write(page, SimpleNamespace(page_size=PAGE), work)
        self.cache.ongoing_backup.pop(operation, None)
        self.leaving.look(None, self.cache)


def request(rid="a", *, ended=True, kind="length", drawn=8, limit=100):
    own = {"group": 0, "sample": 0, "prompt_tokens": 2, "max_new_tokens": limit}
    return SimpleNamespace(
        rid=rid,
        finished=lambda: ended,
        finished_output=False,
        finished_reason=SimpleNamespace(to_json=lambda: {"type": kind}),
        origin_input_ids=[1, 2],
        output_ids=[3] * drawn,
        sampling_params=SimpleNamespace(custom_params=own),
        customized_info=None,
    )


@pytest.fixture
def server():
    return Server()


def left_of(each):
    return LEFT[each.customized_info[KV_LEFT][3:5][-1]]


def test_only_a_chunk_that_goes_on_is_held_back(server):
    server.cache.ongoing_write_through[7] = None
    server.send(request("goes on"), request("decodes", ended=False), request("drew the end", kind="stop"))
    server.send(request("at its limit", drawn=100))
    assert server.sent == ["decodes", "drew the end", "at its limit"]


def test_a_chunk_is_sent_when_its_pages_are_written(server):
    chunk = request()
    server.cache.ongoing_write_through[7] = None
    server.send(chunk)
    server.cache.copied(7, operation=70)
    server.leaving.look(None, server.cache)
    assert server.sent == []
    server.write(70, [0])
    assert (server.sent, left_of(chunk)) == (["a"], "dram")


def test_a_write_of_earlier_pages_of_it_is_waited_for_too(server):
    server.cache.ongoing_write_through |= {7: None, 8: None}
    server.send(request())
    server.cache.copied(7, operation=70)
    server.leaving.look(None, server.cache)
    server.cache.copied(8, operation=80)
    server.write(80, [0])
    assert server.sent == []
    server.write(70, [0])
    assert server.sent == ["a"]


@pytest.mark.parametrize(("code", "left"), [(NO_ROOM, "full"), (-1, "failed")])
def test_a_chunk_says_that_its_pages_are_not_there(server, code, left):
    chunk, other = request(), request("b")
    server.cache.ongoing_backup[70] = 7
    server.send(chunk)
    server.write(70, [0, code])
    assert left_of(chunk) == left
    server.cache.ongoing_backup[80] = 8
    server.send(other)
    server.write(80, [0])
    assert left_of(other) == "dram"


def test_a_store_that_does_not_answer_is_called_once(server, caplog):
    asked = []

    def answer(_store, keys):
        asked.append(keys)
        return [GONE] * len(keys)

    chunk = request()
    server.cache.ongoing_backup[70] = 7
    server.send(chunk)
    assert server.store.look(answer, None, ["a", "b"]) == [GONE, GONE]
    assert server.store.look(answer, None, ["a"]) == [0]
    assert len(asked) == 1
    server.leaving.look(None, server.cache)
    assert (server.sent, left_of(chunk)) == (["a"], "failed")
    server.write(70, [0])
    assert server.store.put(answer, None, ["a"]) == [-1]
    assert len(asked) == 1
    assert caplog.text.count("Mooncake does not answer (-900)") == 1


def test_a_chunk_is_not_held_for_ever(server, monkeypatch, caplog):
    monkeypatch.setattr(leaving, "HOLD_S", -1.0)
    chunk = request()
    server.cache.ongoing_backup[70] = 7
    server.send(chunk)
    server.leaving.look(None, server.cache)
    assert (server.sent, left_of(chunk)) == (["a"], "failed")
    assert "has not written for" in caplog.text


@pytest.mark.parametrize("writes", [0, 3])
def test_a_flush_waits_for_what_is_being_written(writes, monkeypatch):
    monkeypatch.setattr(leaving, "DRAIN_PAUSE_S", 0.0)
    looks = []

    def look():
        looks.append(len(cache.ongoing_backup))
        cache.ongoing_backup.popitem()

    cache = Cache(look)
    cache.ongoing_backup |= dict.fromkeys(range(writes))
    store = Store()
    leaving.drain(store, SimpleNamespace(tree_cache=cache))
    assert looks == list(range(writes, 0, -1))
    assert not store.lost


@pytest.mark.parametrize("ends", [True, False])
def test_a_flush_gives_a_store_up_that_does_not_write(monkeypatch, caplog, ends):
    """What is queued then ends at once, unless it hangs in the store itself."""
    monkeypatch.setattr(leaving, "DRAIN_PAUSE_S", 0.0)
    looks, store = [], Store()

    def look():
        looks.append(70)
        if store.lost and ends:
            cache.ongoing_backup.clear()

    cache = Cache(look)
    cache.ongoing_backup[70] = 7
    leaving.drain(store, SimpleNamespace(tree_cache=cache))
    assert store.lost
    assert len(looks) == (leaving.DRAIN_LOOKS + 1 if ends else 2 * leaving.DRAIN_LOOKS)
    assert "has not written for" in caplog.text


def test_pages_come_back_as_they_were():
    num_layers, num_slots, heads, size = 3, 64, 2, 4
    keys, values = ([torch.randn(num_slots, heads, size) for _ in range(num_layers)] for _ in range(2))
    host = [torch.zeros(4, num_layers, PAGE, heads, size) for _ in range(2)]
    slots, places = torch.arange(5, 5 + 2 * PAGE), torch.cat([torch.arange(48, 64), torch.arange(16, 32)])
    store_layers([*keys, *values], host, slots, places, PAGE)
    into = torch.arange(20, 20 + 2 * PAGE)
    for layer in range(num_layers):
        back = [torch.zeros(num_slots, heads, size) for _ in range(2)]
        load_layer(host, back, places, into, layer, PAGE)
        torch.testing.assert_close(back[0][into], keys[layer][slots], rtol=0, atol=0)
        torch.testing.assert_close(back[1][into], values[layer][slots], rtol=0, atol=0)
        assert not back[0][:20].any()
