"""Engines whose drafts come from each other's responses, through real servers."""

import dataclasses
import os
import signal
import time

import pytest

from sestina.drafting.service.keys import make_keys
from sestina.drafting.service.process import ServerProcess
from sestina.drafting.service.settings import ServerSettings, StoreSettings
from sestina.drafting.settings import IndexSettings
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.shared import SharedIndex
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.conftest import lively_weights
from tests.unit.rollout.helpers import finish, finish_in_chunks, make_engine, make_requests, outputs, same
from tests.unit.rollout.test_suffix_speculator import EAGER, SHAPE

LIMIT_S = 30.0
WEIGHTS = lively_weights(SHAPE)


@pytest.fixture
def server(tmp_path):
    make_keys(tmp_path)
    started = []

    def start(port=0):
        settings = ServerSettings(keys=str(tmp_path), port=port, store=StoreSettings(vocab_size=SHAPE.vocab_size))
        started.append(ServerProcess.start(settings))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def instances(tmp_path):
    """Make (engine, index) of an instance that drafts from all."""
    opened = []

    def make(*addresses):
        shared = SharedIndex(IndexSettings(vocab_size=SHAPE.vocab_size))
        opened.append(shared)
        if addresses:
            shared.connect(addresses, tmp_path)
        speculator = SuffixSpeculator(EAGER, vocab_size=SHAPE.vocab_size, num_slots=16, desk=DraftDesk(shared))
        return make_engine(SHAPE, WEIGHTS, speculator=speculator), shared

    yield make
    for each in opened:
        each.close()


@pytest.fixture(scope="module")
def requests():
    """Responses of a group are alike, and none repeats itself: drafts that are accepted come from siblings."""
    return make_requests(SHAPE, groups=4, samples=4, max_new_tokens=60, temperature=0.0)


@pytest.fixture(scope="module")
def plain(requests):
    return outputs(finish(make_engine(SHAPE, WEIGHTS), requests))


def settle(*shared, replies=3):
    """Exchange until each has had some more replies."""
    before = [each.counts["service_replies"] for each in shared]
    deadline = time.monotonic() + LIMIT_S
    while any(each.counts["service_replies"] < b + replies for each, b in zip(shared, before, strict=True)):
        assert time.monotonic() < deadline
        for each in shared:
            each.exchange(time.monotonic())
        time.sleep(0.001)


def sibling_drafts(first, second, requests, *, meanwhile):
    """Decode a response of each group on one instance, then a second one on the other, which has begun it before.

    Returns the outputs of the first, the whole texts of the second, and the part of those that was drafted.
    """
    ones, others = ([r for r in requests if r.id.sample == sample] for sample in (0, 1))
    begun = finish(second, [dataclasses.replace(r, max_tokens=1) for r in others])
    done = finish(first, ones)
    meanwhile()
    rest = finish(second, [dataclasses.replace(r, generated=begun[r.id].tokens) for r in others])
    texts = {id: [*begun[id].tokens.tolist(), *result.tokens.tolist()] for id, result in rest.items()}
    share = sum(r.accepted_tokens for r in rest.values()) / sum(len(r.tokens) for r in rest.values())
    return outputs(done), texts, share


def as_plain(found, plain):
    outcome, texts, _ = found
    return same(outcome, {id: plain[id] for id in outcome}) and texts == {id: plain[id][0].tolist() for id in texts}


def test_what_one_instance_said_is_drafted_by_another(server, instances, requests, plain):
    address = server().address
    (first, near), (second, far) = instances(address), instances(address)
    together = sibling_drafts(first, second, requests, meanwhile=lambda: settle(near, far))
    (first, _), (second, _) = instances(), instances()
    alone = sibling_drafts(first, second, requests, meanwhile=lambda: None)
    assert as_plain(together, plain)
    assert as_plain(alone, plain)
    assert together[2] > max(0.5, 2 * alone[2])
    assert far.counts["service_tokens_taken_over"] > 100


def test_what_other_weights_said_is_not_drafted(server, instances, requests, plain):
    address = server().address
    (first, near), (second, far) = instances(address), instances(address)
    near.begin(1)  # the controller has not told the second yet
    first.load_weights(1, WEIGHTS)
    found = sibling_drafts(first, second, requests, meanwhile=lambda: settle(near, far))
    assert as_plain(found, plain)
    assert far.counts["service_tokens_taken_over"] == 0
    far.begin(1)
    second.load_weights(1, WEIGHTS)
    first.load_weights(2, WEIGHTS)
    assert not far._client._responses.groups


def test_a_server_that_is_killed_changes_no_token_and_the_next_one_is_told_everything(
    server, instances, requests, plain
):
    one = server()
    (first, near), (second, far) = instances(one.address), instances(one.address)

    def restart():
        os.kill(one.pid, signal.SIGKILL)
        server(int(one.address.rpartition(":")[2]))
        settle(near, far, replies=6)

    found = sibling_drafts(first, second, requests, meanwhile=restart)
    assert as_plain(found, plain)
    assert found[2] > 0.5


def test_a_server_that_was_given_up_leaves_each_with_its_own(server, instances, requests, plain, tmp_path):
    address = server().address
    (first, near), (second, far) = instances(address, address), instances(address, address)
    for shared in (near, far):
        shared.connect(("", ""), tmp_path)
    assert as_plain(sibling_drafts(first, second, requests, meanwhile=lambda: near.exchange(1.0)), plain)
    assert far.counts["service_replies"] == 0


def test_chunks_that_go_round_keep_their_texts(server, instances, requests, plain):
    address = server().address
    (first, near), (second, far) = instances(address), instances(address)
    assert same(finish_in_chunks([first, second], requests, 7), plain)
    settle(near, far)
    assert same(finish_in_chunks([second, first], requests, 9), plain)
    assert all(shared._client._responses.index.check_integrity() == "" for shared in (near, far))


def test_without_keys_drafts_stay_local_and_it_is_said(instances, requests, plain, tmp_path, caplog):
    engine, shared = instances()
    shared.connect(("tcp://127.0.0.1:1",), tmp_path / "nowhere")
    assert same(outputs(finish(engine, requests)), plain)
    assert caplog.text.count("of this instance's responses alone") == 1
