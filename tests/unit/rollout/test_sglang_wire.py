"""SGLang's requests and replies, its command and its environment, without a server."""

import contextlib
import dataclasses
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.core.errors import EngineError
from sestina.core.ids import RequestId
from sestina.core.noise import request_key
from sestina.core.records import ChunkRequest, KvTraffic, VersionSpan
from sestina.kvpool.config import MooncakeKvPoolConfig
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.sglang.drafting import ServerDrafts
from sestina.rollout.sglang.pool import PoolAccount, ServerPool
from sestina.rollout.sglang.relay import _buckets
from sestina.rollout.sglang.reply import finish_of, parse_reply, result_of, tokens_of
from sestina.rollout.sglang.server import OWN_ARGUMENTS, hold_ports, server_command, server_environment
from sestina.rollout.sglang.wire import generate_body, signed
from sestina.rollout.speculation.config import DraftConfig
from tests.conftest import lively_weights, make_shape

CHUNK = ChunkRequest(
    id=RequestId(3, 1),
    prompt=np.array([5, 6], np.int32),
    generated=np.array([7], np.int32),
    max_tokens=4,
    max_new_tokens=10,
    temperature=0.5,
)
CONFIG = SGLangEngineConfig(
    kind="sglang",
    python=Path("env/bin/python"),
    device="cuda",
    dtype="bfloat16",
    tensor_parallel=8,
    data_parallel=1,
    expert_parallel=1,
    memory_fraction=0.85,
    kv_capacity_tokens=0,
    max_running=256,
    page_tokens=64,
    deterministic=True,
    weights="broadcast",
    bucket_bytes=1,
    start_s=1,
    silence_s=1,
    max_restarts=0,
    extra_args=("--chunked-prefill-size", "8192"),
)


DRAFT = DraftConfig(
    source="grouped", length="mba", toggle="always", guard=True, max_tokens=8, paths=1, min_token_prob=0.1
)


STORE = MooncakeKvPoolConfig(
    kind="mooncake", master="node:5", segment_bytes=1 << 30, protocol="rdma", device="mlx5_0", move="cheaper"
)
POOL = ServerPool(config=STORE, name="run", master="node:5", host="10.0.0.7", row_bytes=10)
ALWAYS = dataclasses.replace(POOL, config=dataclasses.replace(STORE, move="always"))


def reply(tokens, kind="length", versions=(("2", 0, 2),)):
    spans = [{"version": v, "start": a, "end": b} for v, a, b in versions]
    meta = {
        "id": "g3/s1#0",
        "finish_reason": {"type": kind, "length": 2},
        "output_token_logprobs": [[-0.5, token, None] for token in tokens],
        "weight_versions": spans,
        "e2e_latency": 1.0,
    }
    return json.dumps({"output_ids": list(tokens), "meta_info": meta}).encode()


def test_a_chunk_asks_for_what_is_left_of_it():
    nearly_done = dataclasses.replace(CHUNK, generated=np.arange(8, dtype=np.int32))
    body = json.loads(generate_body({"r": CHUNK, "s": nearly_done}, seed=9, stop_token=2))
    assert body["rid"] == ["r", "s"]
    assert body["input_ids"] == [[5, 6, 7], [5, 6, *range(8)]]
    assert body["stream"]
    first, second = body["sampling_params"]
    assert first == {
        "max_new_tokens": 4,
        "temperature": 0.5,
        "stop_token_ids": [2],
        "sampling_seed": signed(request_key(9, CHUNK.id)),
        "stream_interval": 10,
        "custom_params": {"group": 3, "sample": 1, "prompt_tokens": 2, "max_new_tokens": 10, "stop_at": 0},
    }
    assert second["max_new_tokens"] == 2


@given(st.integers(0, 2**64 - 1))
def test_a_key_survives_as_a_signed_number(key):
    assert -(2**63) <= signed(key) < 2**63
    assert signed(key) % 2**64 == key


@pytest.mark.parametrize(
    ("kind", "num_generated", "finish"), [("stop", 3, "stop"), ("length", 5, "chunk"), ("length", 10, "length")]
)
def test_why_a_chunk_ended(kind, num_generated, finish):
    assert finish_of(parse_reply(reply([8, 9], kind)), CHUNK, num_generated) == finish


def test_a_reply_is_checked():
    tokens, logprobs = tokens_of(parse_reply(reply([8, 9])))
    assert (tokens.tolist(), logprobs.tolist()) == ([8, 9], [-0.5, -0.5])
    torn = json.loads(reply([8, 9])) | {"output_ids": [8]}
    with pytest.raises(EngineError, match="g3/s1#0: SGLang returned 1 tokens and logprobs of 2 others"):
        parse_reply(json.dumps(torn).encode())
    with pytest.raises(EngineError, match="SGLang's reply cannot be read"):
        parse_reply(b'{"error": 1}')
    with pytest.raises(EngineError, match="SGLang refuses: too long"):
        parse_reply(b'{"error": {"message": "too long", "code": 400}}')
    with pytest.raises(EngineError, match="ended it for an unknown reason 'tired'"):
        finish_of(parse_reply(reply([8, 9], "tired")), CHUNK, 3)


def result(body, versions=range(2, 3), chunk=CHUNK):
    return result_of(parse_reply(body), chunk, versions, submitted_s=0, started_s=0, finished_s=0)


def with_kept(body, kept):
    meta = json.loads(body)
    meta["meta_info"]["kept_kv"] = kept
    return json.dumps(meta)


def test_each_token_is_of_the_weights_that_drew_it():
    body = reply([8, 9, 8, 7], versions=(("1", 0, 1), ("2", 1, 4)))
    mixed = result(body, range(1, 3))
    assert mixed.spans == (VersionSpan(version=1, num_tokens=1), VersionSpan(version=2, num_tokens=3))
    assert (mixed.version, result(reply([8, 9])).spans) == (2, (VersionSpan(version=2, num_tokens=2),))
    kept = result(with_kept(body, [1, 1, 0]), range(1, 3))
    assert kept.spans == result(with_kept(body, [None, 1, 1, 0]), range(1, 3)).spans
    assert kept.spans == (
        VersionSpan(version=1, num_tokens=1),
        VersionSpan(version=2, num_tokens=2, kept_kv=True),
        VersionSpan(version=2, num_tokens=1),
    )


def test_what_ended_before_the_weights_came_is_of_the_old_ones_and_what_was_aborted_of_the_new():
    old = reply([8, 9], "stop", versions=(("1", 0, 2),))
    assert result(old, range(1, 4)).version == 1
    aborted = result(reply([8, 9], "abort", versions=(("1", 0, 2),)), range(1, 4))
    assert aborted.spans == (VersionSpan(version=1, num_tokens=2), VersionSpan(version=3, num_tokens=0))
    assert result(reply([], "abort", versions=(("1", 0, 0),)), range(1, 4)).spans[0].version == 3


@pytest.mark.parametrize(
    "versions",
    [
        (("1", 0, 1), ("2", 1, 2)),
        (("3", 0, 2),),
        (("default", 0, 2),),
        (),
        (("2", 0, 1),),
        (("2", 1, 2),),
        (("2", 0, 2), ("2", 1, 3)),
    ],
)
def test_tokens_of_other_weights_or_of_none_are_refused(versions):
    with pytest.raises(EngineError, match="request g3/s1: expected 2 tokens of versions 2 to 2, SGLang used"):
        result(reply([8, 9], versions=versions))


def test_versions_do_not_go_back_and_marks_are_of_every_token():
    with pytest.raises(EngineError, match="expected 2 tokens of versions 1 to 2"):
        result(reply([8, 9], versions=(("2", 0, 1), ("1", 1, 2))), range(1, 3))
    with pytest.raises(EngineError, match="knows of 3 tokens whether keys and values were kept"):
        result(with_kept(reply([8, 9]), [0, 1, 1]))


def test_a_server_is_no_rank_and_no_step():
    environment = server_environment(
        dataclasses.replace(CONFIG, device="cpu"),
        None,
        {"PMI_RANK": "1", "PMIX_ID": "2", "SLURM_JOB_ID": "3", "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"},
    )
    assert {"PMI_RANK", "PMIX_ID", "SLURM_JOB_ID"}.isdisjoint(environment)
    assert environment["PATH"] == "/bin"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert server_environment(CONFIG, None, {"CUDA_VISIBLE_DEVICES": "0,1"})["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_the_command_on_a_gpu_and_on_a_cpu():
    words = server_command(CONFIG, None, Path("model"), 30000, 30001)
    assert words[:3] == ["env/bin/python", "-m", "sestina.sglang_plugin.serve"]
    assert words[words.index("--tp-size") + 1] == "8"
    assert "--enable-deterministic-inference" in words
    assert {"--max-total-tokens", "--attention-backend", "--sleep-on-idle"}.isdisjoint(words)
    assert words[words.index("--mem-fraction-static") + 1] == "0.85"
    assert {"--attn-dp-size", "--ep-size"}.isdisjoint(words)
    assert words[-2:] == ["--chunked-prefill-size", "8192"]
    spread = server_command(dataclasses.replace(CONFIG, data_parallel=4, expert_parallel=2), None, Path("model"), 1, 2)
    assert spread[spread.index("--attn-dp-size") + 1] == "4"
    assert spread[spread.index("--ep-size") + 1] == "2"
    on_cpu = dataclasses.replace(CONFIG, device="cpu", deterministic=False, kv_capacity_tokens=4096)
    words = server_command(on_cpu, None, Path("model"), 30000, 30001)
    assert words[words.index("--attention-backend") + 1] == "sestina_cpu"
    assert words[words.index("--max-total-tokens") + 1] == "4096"
    assert {"--enable-deterministic-inference", "--mem-fraction-static"}.isdisjoint(words)
    assert "--speculative-algorithm" not in words


@pytest.mark.parametrize(("paths", "most"), [(1, 8), (3, 24), (9, 64)])
def test_a_server_that_drafts_has_room_for_it_beside_the_chunks(paths, most):
    """Every running request may hold two steps' drafts, and a page that is not full."""
    drafts = ServerDrafts(config=dataclasses.replace(DRAFT, paths=paths), max_context_tokens=99, stop_token=2)
    config = dataclasses.replace(CONFIG, device="cpu", kv_capacity_tokens=4096, max_running=4, page_tokens=16)
    words = server_command(config, drafts, Path("model"), 1, 2)
    assert words[words.index("--speculative-algorithm") + 1] == "SESTINA"
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(most + 1)
    room = int(words[words.index("--max-total-tokens") + 1]) - 4096
    assert room >= 4 * (2 * (most + 1) + 15)
    environment = server_environment(config, drafts, {})
    assert ServerDrafts.from_environment(environment["SESTINA_DRAFTS"]) == drafts


def test_a_reply_says_what_was_drafted():
    """As the mean over the steps, of which 7 accepted 5 of 23."""
    meta = json.loads(reply([8, 9]))
    meta["meta_info"] |= {"spec_num_correct_drafts": 5, "spec_verify_ct": 7, "spec_cap_length": 23 / 7}
    found = result(json.dumps(meta).encode())
    assert (found.drafted_tokens, found.accepted_tokens) == (23, 5)


def test_a_server_with_a_pool_writes_through_to_the_runs_own_pages():
    words = server_command(CONFIG, None, Path("model"), 1, 2, POOL)
    assert "--enable-hierarchical-cache" in words
    told = {word[10:]: words[place + 1] for place, word in enumerate(words) if word.startswith("--hicache-")}
    store = json.loads(told.pop("storage-backend-extra-config"))
    assert told == {
        "write-policy": "write_through",
        "io-backend": "kernel",
        "mem-layout": "page_first",
        "storage-backend": "mooncake",
        "storage-prefetch-policy": "timeout",
    }
    assert (store["protocol"], store["device_name"], store["master_server_address"]) == ("rdma", "mlx5_0", "node:5")
    assert (store["extra_backend_tag"], store["global_segment_size"]) == ("sestina-run", 1 << 30)
    assert store["prefetch_threshold"] == 256
    on_cpu = dataclasses.replace(CONFIG, device="cpu", kv_capacity_tokens=4096)
    words = server_command(on_cpu, None, Path("model"), 1, 2, ALWAYS)
    assert words[words.index("--hicache-io-backend") + 1] == "direct"
    assert words[words.index("--hicache-ratio") + 1] == "2"
    assert words[words.index("--hicache-mem-layout") + 1] == "page_first_direct"
    assert json.loads(words[words.index("--hicache-storage-backend-extra-config") + 1])["prefetch_threshold"] == 64
    spread = server_command(dataclasses.replace(CONFIG, data_parallel=4), None, Path("model"), 1, 2, POOL)
    store = json.loads(spread[spread.index("--hicache-storage-backend-extra-config") + 1])
    assert store["global_segment_size"] == 1 << 28
    environment = server_environment(CONFIG, None, {"LOCAL_HOSTNAME": "wrong"}, POOL)
    assert environment["MOONCAKE_LOCAL_HOSTNAME"] == "10.0.0.7"
    assert "SESTINA_KV_POOL" in environment
    assert "SESTINA_KV_POOL" not in server_environment(CONFIG, None, {})


@pytest.mark.parametrize(
    ("known", "cached", "stored", "source"),
    [(130, 128, 64, "dram"), (130, 128, 0, "none"), (129, 64, 64, "absent"), (129, 0, 0, "absent")],
)
def test_a_resumed_chunk_says_where_its_pages_were(known, cached, stored, source):
    chunk = dataclasses.replace(CHUNK, generated=np.zeros(known - 2, np.int32), max_new_tokens=999)
    assert traffic_of(chunk, cached, stored, left=1) == KvTraffic(
        source=source, target="dram", loaded_tokens=stored, moved_bytes=10 * stored
    )


@pytest.mark.parametrize(
    ("kind", "left", "target"),
    [
        ("length", 1, "dram"),
        ("length", 2, "full"),
        ("length", 3, "failed"),
        ("length", None, "failed"),
        ("stop", None, "none"),
    ],
)
def test_a_chunk_that_goes_on_says_what_it_has_left(kind, left, target):
    first = dataclasses.replace(CHUNK, generated=np.zeros(0, np.int32))
    assert traffic_of(first, 0, 0, kind=kind, left=left) == KvTraffic(target=target)


def traffic_of(chunk, cached, stored, kind="length", left=None):
    body = json.loads(reply([8, 9], kind=kind))
    found = {"device": cached - stored, "host": 0, "storage": stored, "storage_backend": "MooncakeStore"}
    body["meta_info"] |= {"cached_tokens": cached, "cached_tokens_details": found if cached else None}
    body["meta_info"] |= {} if left is None else {"kv_left": [None, left]}
    parsed = parse_reply(json.dumps(body).encode())
    account = PoolAccount(page_tokens=64, row_bytes=10)
    return result_of(parsed, chunk, range(2, 3), submitted_s=0, started_s=0, finished_s=0, account=account).kv


def test_a_held_port_is_for_the_server_alone():
    """Whoever asks for any port is given another; a server that is told this one can have it."""
    with contextlib.ExitStack() as open_sockets:
        held = [open_sockets.enter_context(each) for each in hold_ports(3)]
        ports = {each.getsockname()[1] for each in held}
        others = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(200)]
        assert len(ports) == 3
        assert ports.isdisjoint(other.getsockname()[1] for other in others)
        for port in ports:
            open_sockets.enter_context(socket.create_server(("127.0.0.1", port)))


def test_what_a_server_is_told_cannot_be_said_twice():
    """But for how it computes and how much it says, which is the user's to change."""
    drafts = ServerDrafts(config=DRAFT, max_context_tokens=99, stop_token=2)
    for config in (CONFIG, dataclasses.replace(CONFIG, device="cpu", kv_capacity_tokens=64, expert_parallel=2)):
        told = server_command(config, drafts, Path("model"), 1, 2, POOL)
        names = {word[2:] for word in told if word.startswith("--")}
        users = {"chunked-prefill-size", "disable-overlap-schedule", "skip-server-warmup", "sleep-on-idle"}
        users |= {"sampling-backend", "attention-backend", "log-level", "log-level-http", "hicache-ratio"}
        assert names - OWN_ARGUMENTS <= users


@given(st.integers(1, 60_000))
def test_buckets_hold_every_tensor_once_in_order(bucket_bytes):
    tensors = lively_weights(make_shape())
    buckets = list(_buckets(tensors, bucket_bytes))
    assert [name for bucket in buckets for name in bucket] == list(tensors)
    for bucket in buckets:
        assert len(bucket) == 1 or sum(tensors[name].nbytes for name in bucket) <= bucket_bytes
