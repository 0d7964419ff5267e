from dataclasses import replace

import numpy as np

from sestina.bench.rollout import pipelined
from sestina.bench.rollout.pipelined import DEALT, HISTOPIPE, PLAIN, Plan, lengths_of, offers
from tests.unit.bench.helpers import by_name

TINY = replace(pipelined.WORKLOAD, num_groups=4, group_size=2, mean_tokens=12, max_tokens=30, chunk_tokens=16)
PLAN = Plan(workload=TINY, ways=(PLAIN, DEALT, HISTOPIPE), seeds=(1,), steps=3, num_instances=2, ranking_groups=2)


def test_prompts_are_alike_an_epoch_later():
    before, now = map(np.array, lengths_of(Plan(), seed=2))
    assert before.shape == now.shape == (320, 8)
    medians = np.median(before, axis=1), np.median(now, axis=1)
    assert 0.9 < np.corrcoef(*medians)[0, 1] < 1
    assert now.max() <= 192

    def ranks(column):
        return np.argsort(np.argsort(column.reshape(10, 32), axis=1), axis=1) // 4

    assert 0.12 < (ranks(medians[1]) > ranks(medians[0])).mean() < 0.24, "share of prompts that moved up, 8 groups"


def test_offers_have_the_lengths_of_the_last_epoch():
    batches, beta = offers(PLAN, seed=1)
    before, now = lengths_of(PLAN, seed=1)
    assert beta >= 1.1
    assert [history for batch in batches for history in batch.histories] == [tuple(each) for each in before]
    forced = [tuple(length.tokens for length in of_group) for batch in batches for of_group in batch.forced]
    assert forced == [tuple(each) for each in now]


def test_ways_are_compared():
    lines = []
    found = by_name(list(pipelined.figures(lines.append, PLAN)))
    assert len(lines) == 3
    gain = found[f"pipelined, 3 steps: {HISTOPIPE} over {PLAIN}, throughput, median of 1 seeds"]
    assert (gain.must, gain.met) == (">= 1.3", gain.value >= 1.3)
    assert found[f"pipelined, 3 steps: {HISTOPIPE}, versions behind"].value == 1
    assert 0 <= found[f"pipelined: {HISTOPIPE}, migrated"].value <= 1
