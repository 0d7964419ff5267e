"""What an engine says of its steps adds up to what it reports of its chunks."""

import dataclasses

import pytest

from sestina.policies.drafting.cost import StepCost
from sestina.rollout.pages import PAGE_TOKENS
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.suffix import SuffixSpeculator
from tests.unit.rollout.helpers import finish, make_engine, make_requests
from tests.unit.rollout.test_suffix_speculator import EAGER, SHAPE, dull_weights

ROOMY, TIGHT = 4096, 33 * PAGE_TOKENS


def drafting(config, desk=None):
    return SuffixSpeculator(config, vocab_size=SHAPE.vocab_size, num_slots=16, desk=desk)


def run(speculator=None, kv_tokens=ROOMY, samples=4, cost=None):
    """Return the steps, the chunks' results, and the engine."""
    steps = []
    engine = make_engine(
        SHAPE,
        dull_weights(),
        speculator=speculator,
        cost=cost,
        on_step=steps.append,
        kv_capacity_tokens=kv_tokens,
    )
    requests = make_requests(SHAPE, groups=4, samples=samples, max_new_tokens=150, temperature=0.3)
    results = finish(engine, requests)
    return steps, list(results.values()), engine


@pytest.mark.parametrize("kv_tokens", [ROOMY, TIGHT])
@pytest.mark.parametrize("config", [None, EAGER, dataclasses.replace(EAGER, paths=3)])
def test_every_row_of_every_step_is_told(config, kv_tokens):
    steps, results, engine = run(config and drafting(config), kv_tokens)
    load = engine.load()
    assert len(steps) == load.steps
    joined = [chunk for step in steps for chunk in step.joined]
    assert (load.preemptions > 0) == (kv_tokens == TIGHT)
    assert len(joined) == len(results) + load.preemptions
    assert sum(chunk.cached_tokens for chunk in joined) == sum(result.cached_tokens for result in results)
    drawn = sum(len(result.tokens) for result in results)
    accepted = sum(result.accepted_tokens for result in results)
    ends_within_its_draft = sum(step.sequences for step in steps) - (drawn - accepted)
    assert 0 <= ends_within_its_draft <= (len(results) if config else 0)
    assert sum(step.drafted_tokens for step in steps) == sum(result.drafted_tokens for result in results)
    assert all((step.longest_draft > 0) == (step.drafted_tokens > 0) for step in steps)
    longest = max(step.longest_draft for step in steps)
    assert 8 <= longest <= 8 * config.paths if config else longest == 0


def test_what_sequences_hold_is_known_before_they_draw():
    requests = make_requests(SHAPE, groups=4, samples=4, max_new_tokens=150)
    prompts = {request.id: len(request.prompt) for request in requests}
    steps, results, _ = run()
    held = [prompts[result.id] + place for result in results for place in range(len(result.tokens))]
    assert sum(step.kv_tokens for step in steps) == sum(held)


def test_a_decision_against_drafts_looks_none_up():
    rows_alone = StepCost(
        weights_s=0.0,
        kv_token_s=0.0,
        row_s=1.0,
        row_kv_s=0.0,
        plain_sequence_s=0.0,
        verify_sequence_s=1.0,
        draft_token_s=1.0,
    )
    desk = DraftDesk()
    config = dataclasses.replace(EAGER, length="mba", guard=True)
    steps, _, _ = run(drafting(config, desk), cost=rows_alone)
    assert sum(desk.tally.take().steps.values()) > 0, "it was asked"
    assert not any(step.looked for step in steps)


def test_none_may_be_found():
    steps, _, _ = run(drafting(dataclasses.replace(EAGER, source="self", min_token_prob=0.99)), samples=1)
    assert [step for step in steps if step.looked and not step.drafted_tokens]
    assert not any(step.looked for step in run()[0])


def test_a_step_of_prefill_alone_looks_for_nothing():
    steps, _, engine = run(drafting(EAGER))
    assert steps[-1].looked
    before = len(steps)
    finish(engine, make_requests(SHAPE, groups=1, samples=1))
    assert not steps[before].looked
