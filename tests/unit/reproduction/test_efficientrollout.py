import dataclasses

import pytest

from sestina.reproduction.efficientrollout.published import LLAMA_8B, MODELS, MOST_TOKENS, QWEN_7B
from sestina.reproduction.efficientrollout.timeline import Slice, cost_of, cycle_s, rollout_s, slices_of, tau_of


def plain_s(slices, cost):
    return sum(each.tokens * cost.plain_s(each.batch, each.batch * each.context) for each in slices)


@pytest.mark.parametrize("published", MODELS, ids=lambda published: published.name)
def test_a_plain_rollout_takes_what_is_published(published):
    cost = cost_of(published.constants)
    slices, rest_s = slices_of(published, cost)
    assert plain_s(slices, cost) + rest_s == pytest.approx(published.rollout_s, rel=1e-3)
    assert sum(each.tokens for each in slices) <= MOST_TOKENS * 1.001
    assert [each.batch for each in slices] == sorted((each.batch for each in slices), reverse=True)


def test_the_longest_response_is_never_alone_while_its_replica_has_its_part_of_the_others():
    slices, _ = slices_of(QWEN_7B, cost_of(QWEN_7B.constants))
    assert (slices[0].batch, slices[-1].batch) == (129, 1)
    done_99 = round(len(slices) * 30 / 88)
    assert slices[done_99].batch == 2, "9 others on 8 replicas"


def test_time_in_which_nothing_decodes_is_found_again():
    cost = cost_of(LLAMA_8B.constants)
    slices, rest_s = slices_of(LLAMA_8B, cost)
    longer = dataclasses.replace(LLAMA_8B, rollout_s=LLAMA_8B.rollout_s + 20)
    assert rest_s > 0
    assert slices_of(longer, cost)[1] == pytest.approx(rest_s + 20, rel=1e-3)
    assert len(slices) == len(slices_of(longer, cost)[0])


def test_drafts_that_are_never_accepted_only_cost():
    cost = cost_of(QWEN_7B.constants)
    slices, _ = slices_of(QWEN_7B, cost)
    drafted_s, plain = rollout_s(slices, cost, length=5, tau=1.0, toggled=False)
    assert (drafted_s > 2 * plain_s(slices, cost), plain) == (True, 0.0)
    toggled_s, plain = rollout_s(slices, cost, length=5, tau=1.0, toggled=True)
    assert (toggled_s, plain) == (pytest.approx(plain_s(slices, cost)), 1.0)


def test_the_toggle_comes_on_when_few_are_left_and_stays():
    cost = cost_of(QWEN_7B.constants)
    slices = [Slice(batch=batch, context=1024, tokens=100.0) for batch in (128, 64, 8, 128)]
    taken_s, plain = rollout_s(slices, cost, length=7, tau=7.5, toggled=True)
    steps = [100.0, 100.0, 100.0 / 7.5, 100.0 / 7.5]
    assert plain == pytest.approx(200 / sum(steps))
    expected_s = 100 * (cost.plain_s(128, 128 * 1024) + cost.plain_s(64, 64 * 1024))
    expected_s += 100 / 7.5 * (cycle_s(cost, 8, 1024, 7) + cycle_s(cost, 128, 1024, 7))
    assert taken_s == pytest.approx(expected_s)


def test_a_cycles_tokens_are_a_geometric_sum():
    assert tau_of(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
