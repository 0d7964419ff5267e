"""Chunks that take their keys and values along, between real engines through a real pool."""

import dataclasses

import numpy as np
import pytest

from sestina.kvpool.config import LocalKvPoolConfig, MooncakeKvPoolConfig
from sestina.kvpool.local import LocalPool
from sestina.kvpool.master import Master
from sestina.kvpool.mooncake import MooncakePool
from sestina.policies.kv_pool.cost import MoveCost
from tests.conftest import lively_weights
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same

PLENTY = 1 << 30
ROW_S = 10.0
"""Computing again is dear, however slowly this machine moves anything at the moment."""
CONFIG = LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=PLENTY, ssd_bytes=0, ssd_dir=None)


@pytest.fixture
def join(tmp_path, shape, weights):
    """Makes engines of one node, each with its own hold on the pool."""
    engines = []

    def make(config=CONFIG, loaded=weights, **changes):
        (tmp_path / "shm").mkdir(exist_ok=True)
        pool = LocalPool(config, "test", shared=tmp_path / "shm")
        engine = make_engine(shape, loaded, kv_pool=pool, **changes)
        engine._kv._cost = MoveCost(ROW_S)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
    assert not list((tmp_path / "shm").iterdir())


def entries(tmp_path):
    """Files of the SSD."""
    return sorted(tmp_path.glob("**/*.kv"))


def in_memory(engine):
    pool = engine._kv._pool
    with pool._tiers.tally:
        return [entry.name for entry in pool._tiers.memory.held()]


def resumed(request, result):
    return dataclasses.replace(request, generated=np.concatenate([request.generated, result.tokens]))


@pytest.mark.parametrize("chunk", [16, 17, 33])
def test_moved_keys_and_values_change_no_token_and_nothing_is_prefilled_again(join, shape, weights, chunk):
    requests = make_requests(shape)
    whole = outputs(finish(make_engine(shape, weights), requests))
    engines = [join() for _ in range(3)]
    assert same(whole, finish_in_chunks(engines, requests, chunk))
    assert sum(engine.load().prefilled_tokens for engine in engines) <= sum(len(r.prompt) for r in requests)
    assert engines[0]._kv._pool._tiers.tally["dram"] == 0, "responses that have ended leave nothing"


def test_a_resumed_chunk_computes_its_last_token_alone(join, shape):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    first, second = join(stop_token=-1), join(stop_token=-1)
    before = finish(first, [dataclasses.replace(request, max_tokens=50)])[request.id]
    after = finish(second, [resumed(request, before)])[request.id]
    computed = len(request.prompt) + 49
    assert (before.kv.source, before.kv.target) == ("none", "dram")
    assert (after.kv.source, after.kv.target) == ("dram", "none")
    assert (after.prefilled_tokens, after.cached_tokens, after.kv.loaded_tokens) == (1, 0, computed)
    assert after.kv.moved_bytes == before.kv.moved_bytes > computed * 3 * 2 * 2 * 16 * 4


def test_an_entry_larger_than_what_moves_at_once_is_moved_by_the_thread(monkeypatch, join, shape, weights):
    monkeypatch.setattr("sestina.kvpool.local.NEAR_BYTES", 1)
    requests = make_requests(shape)
    whole = outputs(finish(make_engine(shape, weights), requests))
    engines = [join() for _ in range(2)]
    assert same(whole, finish_in_chunks(engines, requests, 17))
    assert sum(engine.load().prefilled_tokens for engine in engines) <= sum(len(r.prompt) for r in requests)


def test_a_group_shares_its_prompt_again_where_it_is_resumed(join, shape, weights):
    requests = make_requests(shape, groups=1, samples=4, max_new_tokens=60)
    whole = outputs(finish(make_engine(shape, weights, stop_token=-1), requests))
    first, second = join(stop_token=-1), join(stop_token=-1)
    before = finish(first, [dataclasses.replace(r, max_tokens=20) for r in requests])
    after = finish(second, [resumed(r, before[r.id]) for r in requests])
    assert {result.prefilled_tokens for result in after.values()} == {1}
    assert all(np.array_equal(whole[id][0][20:], after[id].tokens) for id in whole)
    cached = requests[0].prompt.size // 16 * 16
    assert sorted({result.cached_tokens for result in after.values()}) == [0, cached]


def full(tmp_path):
    return LocalKvPoolConfig(kind="local", move="cheaper", dram_bytes=1000, ssd_bytes=1000, ssd_dir=tmp_path)


def test_a_pool_full_on_both_tiers_computes_again_and_counts(tmp_path, join, shape, weights):
    requests = make_requests(shape)
    whole = outputs(finish(make_engine(shape, weights), requests))
    (tmp_path / "ssd").mkdir()
    assert same(whole, finish_in_chunks([join(full(tmp_path / "ssd")) for _ in range(2)], requests, 20))
    engines = [join(full(tmp_path / "ssd"), stop_token=-1) for _ in range(2)]
    request = dataclasses.replace(requests[0], max_tokens=20)
    before = finish(engines[0], [request])[request.id]
    assert before.kv.target == "full"
    assert finish(engines[1], [resumed(requests[0], before)])[request.id].kv.source == "absent"


def kept_by(tmp_path, join, shape, weights, tier):
    """An engine that goes on with a chunk which another one has left on this tier; with it the chunk and the whole."""
    (tmp_path / "ssd").mkdir()
    limits = {"dram": (PLENTY, 0), "ssd": (1, PLENTY)}[tier]
    config = LocalKvPoolConfig(
        kind="local", move="cheaper", dram_bytes=limits[0], ssd_bytes=limits[1], ssd_dir=tmp_path / "ssd"
    )
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    whole = finish(make_engine(shape, weights, stop_token=-1), [request])[request.id]
    first, second = join(config, stop_token=-1), join(config, stop_token=-1)
    before = finish(first, [dataclasses.replace(request, max_tokens=50)])[request.id]
    assert before.kv.target == tier
    return second, resumed(request, before), before, whole


def harmed(content, harm):
    """The bytes of a file after damage near the end of its entry."""
    raw = bytearray(content.rstrip(b"\0"))
    raw[-5000] ^= 1
    return {"flipped": bytes(raw), "truncated": bytes(raw[:-3000]), "emptied": b""}[harm]


@pytest.mark.parametrize("tier", ["dram", "ssd"])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "emptied"])
def test_a_damaged_entry_is_noticed_and_computed_again(tmp_path, join, shape, weights, tier, harm):
    engine, request, before, whole = kept_by(tmp_path, join, shape, weights, tier)
    [path] = entries(tmp_path) if tier == "ssd" else tmp_path.glob("shm/*/pages-*")
    path.write_bytes(harmed(path.read_bytes(), harm))
    after = finish(engine, [request])[request.id]
    assert after.kv.source == "corrupt"
    assert after.prefilled_tokens > 1
    assert after.kv.loaded_tokens % 16 == 0
    assert (after.kv.loaded_tokens > 0) == (harm != "emptied")
    assert np.array_equal(np.concatenate([before.tokens, after.tokens]), whole.tokens)


def test_what_is_known_of_an_entry_is_damaged_and_it_is_computed_again(tmp_path, join, shape, weights):
    engine, request, before, whole = kept_by(tmp_path, join, shape, weights, "dram")
    [path] = tmp_path.glob("shm/*/index-*")
    raw = path.read_bytes()
    with path.open("r+b") as file:  # the number of tokens, behind keys, checksums and times
        file.seek(raw.index((len(request.prompt) + 49).to_bytes(4, "little"), 64))
        file.write((3).to_bytes(4, "little"))
    after = finish(engine, [request])[request.id]
    assert (after.kv.source, after.kv.loaded_tokens) == ("corrupt", 0)
    assert np.array_equal(np.concatenate([before.tokens, after.tokens]), whole.tokens)


def test_new_weights_find_nothing_of_the_old_ones(tmp_path, join, shape, weights):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=60)[0]
    first, second = join(stop_token=-1), join(stop_token=-1)
    before = finish(first, [dataclasses.replace(request, max_tokens=30)])[request.id]
    other = lively_weights(shape, seed=9)
    assert in_memory(second)
    second.load_weights(1, other)
    assert not in_memory(second)
    again = finish(second, [resumed(request, before)])[request.id]
    fresh = finish(make_engine(shape, other, stop_token=-1), [resumed(request, before)])[request.id]
    assert again.kv.source == "absent"
    assert np.array_equal(again.tokens, fresh.tokens)


@pytest.mark.parametrize("interruption", ["recompute", "keep_kv"])
@pytest.mark.parametrize("near_bytes", [PLENTY, 1], ids=["near", "by the thread"])
def test_what_was_fetched_for_older_weights_is_computed_again(
    monkeypatch, join, shape, weights, interruption, near_bytes
):
    monkeypatch.setattr("sestina.kvpool.local.NEAR_BYTES", near_bytes)
    requests = make_requests(shape, groups=3, samples=1, max_new_tokens=100)
    first, second = (join(stop_token=-1, interruption=interruption, max_running=1) for _ in range(2))
    before = finish(first, [dataclasses.replace(request, max_tokens=20) for request in requests])
    on_the_way = [resumed(request, before[request.id]) for request in requests]
    for request in on_the_way:
        second.submit(request)
    second.step()
    other = lively_weights(shape, seed=9)
    second.load_weights(1, other)
    after = finish(second, [])
    fresh = finish(make_engine(shape, other, stop_token=-1), on_the_way)
    waited = [request.id for request in requests if after[request.id].spans[0].version == 1]
    assert len(waited) >= 2
    assert all(np.array_equal(after[id].tokens, fresh[id].tokens) for id in waited)
    assert second._kv._pool._tiers.tally["dram"] == 0


def test_what_older_weights_have_computed_in_part_is_not_kept_for_others(join, shape):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    first, second = (join(stop_token=-1, interruption="keep_kv") for _ in range(2))
    first.submit(dataclasses.replace(request, max_tokens=40))
    for _ in range(20):
        first.step()
    other = lively_weights(shape, seed=9)
    for engine in (first, second):
        engine.load_weights(1, other)
    before = finish(first, [])[request.id]
    assert before.kept_kv
    assert not in_memory(first)
    after = finish(second, [resumed(request, before)])[request.id]
    fresh = finish(make_engine(shape, other, stop_token=-1), [resumed(request, before)])[request.id]
    assert np.array_equal(after.tokens, fresh.tokens)
    assert after.kv.source == "absent"


def test_an_entry_that_is_dear_to_move_is_left_and_gone(tmp_path, join, shape):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    first, second = join(stop_token=-1), join(stop_token=-1)
    for _ in range(4):
        second._kv._cost.learn("dram", 10**6, 10**4 * ROW_S)
    before = finish(first, [dataclasses.replace(request, max_tokens=50)])[request.id]
    after = finish(second, [resumed(request, before)])[request.id]
    assert (after.kv.source, after.kv.loaded_tokens) == ("dearer", 0)
    assert not in_memory(second)
    assert second._kv._pool._tiers.tally["dram"] == 0


def test_what_is_always_moved_is_moved_however_dear(join, shape):
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    first, second = (join(dataclasses.replace(CONFIG, move="always"), stop_token=-1) for _ in range(2))
    for _ in range(4):
        second._kv._cost.learn("dram", 10**6, 10**4 * ROW_S)
    before = finish(first, [dataclasses.replace(request, max_tokens=50)])[request.id]
    after = finish(second, [resumed(request, before)])[request.id]
    assert (after.kv.source, after.prefilled_tokens) == ("dram", 1)


def test_an_aborted_chunk_comes_back_from_wherever_it_is(join, shape):
    requests = make_requests(shape, groups=2, samples=2, max_new_tokens=60)
    first, second = join(stop_token=-1), join(stop_token=-1)
    before = finish(first, [dataclasses.replace(r, max_tokens=20) for r in requests])
    for request in requests:
        second.submit(resumed(request, before[request.id]))
    second.abort([request.id for request in requests])
    assert second._kv._pool._tiers.tally["dram"] == 0, "what was taken for them is given back"
    assert {result.finish for result in second.step()} == {"abort"}
    assert second.idle


@pytest.fixture
def mooncake(tmp_path, shape, weights):
    """Makes engines with holds on one Mooncake store, and its master."""
    pytest.importorskip("mooncake.store", reason="Mooncake, or libibverbs1, is not installed", exc_type=ImportError)
    master, engines = Master(tmp_path / "master.log"), []
    config = MooncakeKvPoolConfig(
        kind="mooncake", master=None, segment_bytes=16 << 20, protocol="tcp", device="", move="always"
    )

    def make(**changes):
        pool = MooncakePool(config, "test", master=master.address, host="127.0.0.1")
        engines.append(make_engine(shape, weights, kv_pool=pool, **changes))
        return engines[-1]

    yield make, master
    for engine in engines:
        engine.close()
    master.end()


def test_mooncake_moves_keys_and_values_too(mooncake, shape, weights):
    make, _ = mooncake
    requests = make_requests(shape)
    whole = outputs(finish(make_engine(shape, weights), requests))
    engines = [make() for _ in range(2)]
    assert same(whole, finish_in_chunks(engines, requests, 17))
    assert sum(engine.load().prefilled_tokens for engine in engines) <= sum(len(r.prompt) for r in requests)


def test_a_mooncake_master_that_dies_costs_prefill_and_no_token(mooncake, shape, weights):
    make, master = mooncake
    request = make_requests(shape, groups=1, samples=1, max_new_tokens=100)[0]
    whole = finish(make_engine(shape, weights, stop_token=-1), [request])[request.id]
    first, second = make(stop_token=-1), make(stop_token=-1)
    before = finish(first, [dataclasses.replace(request, max_tokens=50)])[request.id]
    assert before.kv.target == "dram"
    master.end()
    after = finish(second, [dataclasses.replace(resumed(request, before), max_tokens=20)])[request.id]
    assert (after.kv.source, after.kv.target) == ("failed", "failed")
    assert after.prefilled_tokens > 1
    assert np.array_equal(np.concatenate([before.tokens, after.tokens]), whole.tokens[:70])


def test_what_comes_next_is_brought_to_memory(tmp_path, join, shape):
    (tmp_path / "ssd").mkdir()
    requests = make_requests(shape, groups=3, samples=1, max_new_tokens=60)
    config = LocalKvPoolConfig(
        kind="local", move="cheaper", dram_bytes=100_000, ssd_bytes=PLENTY, ssd_dir=tmp_path / "ssd"
    )
    engine = join(config, stop_token=-1)
    before = {}
    for request in requests:
        before |= finish(engine, [dataclasses.replace(request, max_tokens=20)])
    [on_ssd, *_] = entries(tmp_path / "ssd")
    victim = next(r for r in requests if on_ssd.name == f"0-{r.id.group}-0.kv")
    others = [r for r in requests if r is not victim]
    finish(engine, [resumed(r, before[r.id]) for r in others])
    engine.expect([victim.id], [victim.id])
    engine._kv._promoting.result(10)
    after = finish(engine, [resumed(victim, before[victim.id])])[victim.id]
    assert (after.kv.source, after.prefilled_tokens) == ("dram", 1)
