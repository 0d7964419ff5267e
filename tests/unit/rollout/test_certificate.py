"""What a certificate must pass and what it must fail, on real engines, whole and in chunks."""

import dataclasses

import numpy as np
import pytest

from sestina.core.ids import RequestId
from sestina.core.noise import exponentials, request_key
from sestina.rollout.certificate.asked import Effort, requests_of
from sestina.rollout.certificate.checks import TIE, alike, close, equal, equal_but_for_ties, used
from sestina.rollout.certificate.decode import decode
from sestina.rollout.certificate.page import Certificate, page
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.conftest import lively_weights, make_shape
from tests.unit.rollout.helpers import finish, make_engine

SHAPE = make_shape(vocab_size=60)
DRAFTS = DraftConfig(
    source="grouped", length="fixed", toggle="always", guard=False, max_tokens=8, paths=1, min_token_prob=0.0
)
PROMPTS = [np.arange(2 + number, 30 + 2 * number, dtype=np.int32) % SHAPE.vocab_size for number in range(6)]
SEED = 5
"""Of the engines that helpers make."""
EFFORT = Effort(num_prompts=6, num_samples=16)


def weights(off=0.0):
    """Those of the model, one layer of it off by a share."""
    tensors = lively_weights(SHAPE)
    name = "model.layers.1.mlp.down_proj.weight"
    return tensors | {name: tensors[name] * (1 + off)}


def requests(first=0):
    return requests_of(PROMPTS, EFFORT, first, max_new_tokens=40, temperature=1.0)


def decoded(asked, tensors, engines=1, chunk_tokens=None, **changes):
    def build():
        speculator = SuffixSpeculator(DRAFTS, vocab_size=SHAPE.vocab_size, num_slots=16)
        return make_engine(SHAPE, tensors, speculator=speculator, stop_token=3, **changes)

    found = decode([build() for _ in range(engines)], asked, chunk_tokens=chunk_tokens)
    return [found[request.id] for request in asked]


@pytest.fixture(scope="module")
def plain():
    asked = requests()
    found = decode([make_engine(SHAPE, weights(), stop_token=3)], asked)
    assert {r.id: r.tokens.tolist() for r in finish(make_engine(SHAPE, weights(), stop_token=3), asked).values()} == {
        id: response.tokens.tolist() for id, response in found.items()
    }
    return [found[request.id] for request in asked]


def test_what_is_equal_passes_and_was_in_use(plain):
    on = decoded(requests(), weights(), engines=2, chunk_tokens=7)
    check = equal("all", plain, on)
    assert (check.passed, check.found.split()[0]) == (True, "96")
    assert all(found.passed for found in used("all", on, drafts=True, chunks=True))
    assert sum(r.migrations for r in on) > 96


def test_an_arm_that_did_nothing_fails(plain):
    assert [check.passed for check in used("all", plain, drafts=True, chunks=True)] == [False, False]
    assert used("all", plain, drafts=False, chunks=False) == []


@pytest.mark.parametrize("off", [0.01, 0.5])
def test_corrupted_weights_fail(plain, off):
    on = decoded(requests(), weights(off))
    check = equal("drafts", plain, on)
    assert not check.passed
    assert "of 96 responses differ; number" in check.found
    assert not close("drafts", plain, on, most=1e-4).passed


def test_another_engine_setting_fails(plain):
    """A seed that is not the run's: other tokens, from the same distribution."""
    on = decoded(requests(), weights(), seed=6)
    assert not equal("drafts", plain, on).passed
    assert alike("drafts", plain, on).passed


def test_distributions_of_other_noise_are_alike_unless_weights_are_others(plain):
    assert alike("drafts", plain, decoded(requests(first=1000), weights())).passed
    spoilt = alike("drafts", plain, decoded(requests(first=1000), lively_weights(SHAPE, seed=9)))
    assert not spoilt.passed
    assert "least chance" in spoilt.found


def test_a_last_bit_in_one_logprob_is_seen(plain):
    logprobs = plain[5].logprobs.copy()
    logprobs[-1] = np.nextafter(logprobs[-1], np.float32(0))
    on = [*plain[:5], dataclasses.replace(plain[5], logprobs=logprobs), *plain[6:]]
    check = equal("drafts", plain, on)
    assert not check.passed
    assert check.found.startswith("1 of 96 responses differ; number 5")
    assert close("drafts", plain, on, most=1e-6).passed


def parted(plain, number, at, by):
    """The responses, one of which goes another way from a token on, whose score is that of the drawn one plus `by`."""
    response, request = plain[number], requests()[number]
    drawn = int(response.tokens[at])
    other = (drawn + 1) % SHAPE.vocab_size
    noise = np.log(exponentials(request_key(SEED, request.id), len(request.prompt) + at - 1, SHAPE.vocab_size))
    tokens, logprobs = response.tokens.copy(), response.logprobs.copy()
    tokens[at:], logprobs[at] = other, logprobs[at] - noise[drawn] + noise[other] + by
    changed = dataclasses.replace(response, tokens=tokens, logprobs=logprobs)
    return [*plain[:number], changed, *plain[number + 1 :]]


def test_responses_part_only_at_ties(plain):
    def found(on):
        return equal_but_for_ties("drafts", plain, on, requests(), seed=SEED)

    assert found(plain).passed
    assert found(plain).found.endswith("0 of which part at a tie; logprobs by at most 0, allowed 0.0001")
    tie = found(parted(plain, 5, 9, by=0.5 * TIE))
    assert tie.passed, tie
    assert "96 responses are equal, 1 of which part" in tie.found
    no_tie = found(parted(plain, 5, 9, by=-3 * TIE))
    assert (no_tie.passed, no_tie.found.split(";")[:2]) == (
        False,
        ["1 of 96 responses differ", " number 5 from token 9 on"],
    )


def test_a_response_that_ends_early_is_no_tie(plain):
    shorter = dataclasses.replace(plain[5], tokens=plain[5].tokens[:-1], logprobs=plain[5].logprobs[:-1])
    on = [*plain[:5], shorter, *plain[6:]]
    assert not equal_but_for_ties("drafts", plain, on, requests(), seed=SEED).passed


@pytest.mark.parametrize(("by", "passed"), [(0.5 * TIE, True), (2 * TIE, False)])
def test_logprobs_of_equal_tokens_differ_by_the_rounding_at_most(plain, by, passed):
    on = [*plain[:5], dataclasses.replace(plain[5], logprobs=plain[5].logprobs - by), *plain[6:]]
    assert equal_but_for_ties("drafts", plain, on, requests(), seed=SEED).passed is passed


def test_corrupted_weights_and_another_seed_are_no_ties(plain):
    for on in (decoded(requests(), weights(0.01)), decoded(requests(), weights(), seed=6)):
        assert not equal_but_for_ties("drafts", plain, on, requests(), seed=SEED).passed


def test_nothing_in_common_is_not_close(plain):
    on = [dataclasses.replace(r, tokens=r.tokens + 1) for r in plain]
    assert not close("drafts", plain, on, most=1e9).passed


def test_the_page_says_what_failed(plain):
    good = equal("drafts", plain, plain)
    certificate = Certificate(
        model="models/mine",
        tested_model="models/converted",
        engine="engine torch on cpu, float32",
        held_by="bits",
        num_prompts=6,
        num_samples=16,
        max_new_tokens=40,
        chunk_tokens=7,
        machine="a machine",
        commit=None,
        date="2026-01-01T00:00:00Z",
        checks=(good, dataclasses.replace(good, arm="chunks", passed=False, found="3 differ")),
        left_out=("draft.source: no",),
    )
    text = page(certificate)
    assert not certificate.passed
    assert text.startswith("# Certificate: FAILED (1 of 2 checks)\n\nmodels/mine against models/converted, ")
    assert "| chunks | tokens and logprobs | FAILED | 3 differ |" in text
    assert text.endswith("\nNot compared: draft.source: no\n")
    assert page(dataclasses.replace(certificate, checks=(good,))).startswith("# Certificate: PASSED\n")


def test_requests_of_other_groups_have_the_same_prompts():
    assert requests(first=7)[16].id == RequestId(8, 0)
    assert all(a.prompt is b.prompt for a, b in zip(requests(), requests(first=7), strict=True))
