"""What a certificate must pass and what it must fail, on real engines, whole and in chunks."""

import dataclasses

import numpy as np
import pytest

from sestina.core.ids import RequestId
from sestina.rollout.certificate.asked import Effort, requests_of
from sestina.rollout.certificate.checks import alike, close, equal, used
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


def test_nothing_in_common_is_not_close(plain):
    on = [dataclasses.replace(r, tokens=r.tokens + 1) for r in plain]
    assert not close("drafts", plain, on, most=1e9).passed


def test_the_page_says_what_failed(plain):
    good = equal("drafts", plain, plain)
    certificate = Certificate(
        model="models/mine",
        tested_model="models/converted",
        engine="engine torch on cpu, float32",
        coupled=True,
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
