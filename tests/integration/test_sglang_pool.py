"""SGLang servers that share keys and values: found by another server, never by other weights, done without if lost."""

import dataclasses
import logging

import numpy as np
import psutil
import pytest

from sestina.core.errors import EngineError
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.kvpool.master import Master
from sestina.rollout.sglang.pool import ServerPool
from tests.integration.sglang_bench import CONFIG, CONTEXT_TOKENS, PYTHON, SEED, SHAPE, STOP, start, weights, write
from tests.integration.test_kv_pool import MOONCAKE, masters_of
from tests.integration.worlds import BASE, small_model, train, training, wait_for
from tests.integration.worlds import finish as conclude
from tests.unit.rollout.helpers import finish, make_engine, make_requests, outputs

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(600)]
STORE = MooncakeKvPoolConfig(
    kind="mooncake", master=None, segment_bytes=1 << 25, protocol="tcp", device="", move="always"
)
CHUNK_TOKENS = 64
ROW_BYTES = 2 * SHAPE.num_layers * SHAPE.num_kv_heads * SHAPE.head_size * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sglang_pool")
    write(path / "model")
    return path


@pytest.fixture(scope="module")
def master(folder):
    pytest.importorskip("mooncake.store", reason="Mooncake, or libibverbs1, is not installed", exc_type=ImportError)
    master = Master(folder / "mooncake_master.log")
    yield master
    master.end()


def pool_of(address):
    return ServerPool(config=STORE, name="test", master=address, host="127.0.0.1", row_bytes=ROW_BYTES)


@pytest.fixture(scope="module")
def servers(folder, master):
    """Two that share a store."""
    engines = [start(folder, pool=pool_of(master.address), log=f"sglang_{place}.log") for place in range(2)]
    yield engines
    for engine in engines:
        engine.close()


def load(servers, version, seed):
    for engine in servers:
        engine.load_weights(version, weights(seed))


def embedded(seed):
    return make_engine(SHAPE, weights(seed), stop_token=STOP, seed=SEED, max_context_tokens=CONTEXT_TOKENS)


def assert_same(found, expected):
    """Equal tokens, logprobs as close as two orders of floating-point sums are."""
    assert found.keys() == expected.keys()
    for id, (tokens, logprobs) in outputs(expected).items():
        np.testing.assert_array_equal(found[id].tokens, tokens, err_msg=str(id))
        np.testing.assert_allclose(found[id].logprobs, logprobs, atol=1e-4, err_msg=str(id))


def first_chunks():
    requests = make_requests(SHAPE, groups=8, samples=2, max_new_tokens=180)
    return [dataclasses.replace(request, max_tokens=CHUNK_TOKENS) for request in requests]


def second_chunks(first, requests):
    """Those that go on, with what the first has come to."""
    going_on = [request for request in requests if first[request.id].finish == "chunk"]
    assert len(going_on) > 4
    return [dataclasses.replace(request, generated=first[request.id].tokens) for request in going_on]


def known(chunk):
    return len(chunk.prompt) + len(chunk.generated)


def test_servers_whose_environment_lacks_mooncake_say_so(folder, master, tmp_path):
    (tmp_path / "other/mooncake").mkdir(parents=True)
    (tmp_path / "other/mooncake/__init__.py").write_text("")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{tmp_path}/other exec {PYTHON} "$@"\n')
    python.chmod(0o755)
    said = r"(.|\n)*cannot load Mooncake \(No module named 'mooncake.store'\); rollout.kv_pool.kind 'mooncake' needs "
    with pytest.raises(EngineError, match=f"SGLang ended with exit code 2{said}"):
        start(folder, dataclasses.replace(CONFIG, python=python), pool=pool_of(master.address), log="without.log")


def test_a_chunk_goes_on_at_another_server_with_the_pages_of_the_first(servers):
    load(servers, 0, seed=0)
    first = finish(servers[0], first_chunks())
    assert {result.kv.target for result in first.values() if result.finish == "chunk"} == {"dram"}
    chunks = second_chunks(first, first_chunks())
    second = finish(servers[1], chunks)
    for chunk in chunks:
        result, page = second[chunk.id], CONFIG.page_tokens
        assert result.cached_tokens == (known(chunk) - 1) // page * page
        assert result.prefilled_tokens == known(chunk) - result.cached_tokens
        assert result.kv.source == "dram"
        assert result.kv.moved_bytes == result.kv.loaded_tokens * ROW_BYTES > 0
    assert_same(second, finish(embedded(0), chunks))


def test_new_weights_find_nothing_of_the_old_ones_which_are_still_there(servers):
    """The same texts, three times: under old weights, under new ones, and under the old ones again."""
    load(servers, 10, seed=0)
    chunks = second_chunks(finish(servers[0], first_chunks()), first_chunks())
    load(servers, 11, seed=1)
    renewed = finish(servers[1], chunks)
    assert all(renewed[chunk.id].cached_tokens <= len(chunk.prompt) for chunk in chunks), "more than a sibling's prompt"
    assert {result.kv.loaded_tokens for result in renewed.values()} == {0}
    assert_same(renewed, finish(embedded(1), chunks))
    load(servers, 10, seed=0)
    again = finish(servers[1], chunks)
    assert min(result.kv.loaded_tokens for result in again.values()) > 0, "the old pages were gone: nothing was shown"
    assert_same(again, finish(embedded(0), chunks))
    assert [engine.load().restarts for engine in servers] == [0, 0], "a flush was refused"


def test_pages_go_with_the_server_that_lent_their_memory(servers):
    """The master still names them; whoever asks gets none, and computes."""
    load(servers, 15, seed=0)
    chunks = second_chunks(finish(servers[0], first_chunks()), first_chunks())
    psutil.Process(servers[0]._keeper.life.process.pid).kill()
    assert_same(finish(servers[1], chunks), finish(embedded(0), chunks))
    assert_same(finish(servers[0], chunks), finish(embedded(0), chunks))
    assert servers[0].load().restarts == 1


def test_servers_go_on_without_the_master(servers, master, folder):
    """It comes last here: the two servers have given the store up after it."""
    load(servers, 20, seed=0)
    first = finish(servers[0], first_chunks())
    master.end()
    chunks = second_chunks(first, first_chunks())
    second = finish(servers[1], chunks)
    assert {result.kv.source for result in second.values()} == {"absent"}
    assert {result.kv.target for result in second.values() if result.finish == "chunk"} == {"failed"}
    assert "KV pool: Mooncake does not answer" in (folder / "sglang_1.log").read_text()
    assert_same(second, finish(embedded(0), chunks))
    load(servers, 21, seed=1)
    assert_same(finish(servers[1], chunks), finish(embedded(1), chunks))


def test_a_server_without_a_master_is_started_without_a_store(folder, caplog):
    with caplog.at_level(logging.WARNING):
        engine = start(folder, pool=pool_of("127.0.0.1:1"), log="sglang_alone.log")
    try:
        assert "no mooncake_master answers at 127.0.0.1:1" in caplog.text
        engine.load_weights(0, weights())
        requests = make_requests(SHAPE, groups=2)
        assert_same(finish(engine, requests), finish(embedded(0), requests))
    finally:
        engine.close()


RUN = {
    **{key: value for key, value in MOONCAKE.items() if key != "rollout__num_instances"},
    "rollout__num_instances": 2,
    "rollout__engine__max_step_tokens": None,
    "rollout__engine__python": PYTHON,
    "deadlines__start_s": 240,
}


@pytest.mark.mpi
def test_a_run_whose_master_is_killed_says_so_and_goes_on(tmp_path, master):
    """Every chunk that went on had found its pages before."""
    model = small_model(tmp_path)
    without = train(tmp_path / "without", model, rollout__num_instances=2, run__steps=4)
    base = (*BASE, "rollout.engine=sglang")
    with training(tmp_path / "run", model, base, run__steps=4, **RUN) as (process, run):
        wait_for(process, run, lambda status: status.step >= 1, limit_s=240)
        [own] = masters_of(run)
        own.kill()
        conclude(process, run)
    assert run.code == 0, run.output
    assert "KV pool: mooncake_master ended with exit code -9" in run.output
    assert "could not be left in the store; chunks that move are computed again" in run.output
    assert run.metric("rollout/tokens_crc32") == without.metric("rollout/tokens_crc32")
    assert run.metric("perf/kv_pool_resumed")[0] > 30
    assert run.metric("perf/kv_pool_loaded_tokens")[0] > 0
    assert run.metric("perf/kv_pool_prefilled_again")[0] == 0
    assert run.metric("perf/kv_pool_prefilled_again_failed")[-1] > 0
    assert run.metric("perf/kv_pool_loaded_tokens")[-1] == 0
