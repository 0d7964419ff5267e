import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.algorithms.packing import pack
from sestina.data.sums import SumsGenerator, solution


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=60),
    budget=st.integers(100, 400),
    multiple_of=st.integers(1, 4),
)
def test_every_sample_is_packed_once_within_the_budget(lengths, budget, multiple_of):
    batches = pack(lengths, budget, multiple_of=multiple_of)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(batch == sorted(batch) for batch in batches)
    assert all(batches) or len(batches) - multiple_of < len(lengths)
    assert all(sum(lengths[i] for i in batch) <= budget for batch in batches)
    assert len(batches) % multiple_of == 0
    assert batches == pack(lengths, budget, multiple_of=multiple_of)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_few_micro_batches(lengths):
    # A batch is opened only when nothing fits, so no two batches could be merged twice over.
    assert len(pack(lengths, 100)) <= 2 * -(-sum(lengths) // 100)


def heavy_tailed_lengths(count):
    generator = SumsGenerator(seed=1, max_terms=52, tail=1.1, held_out=False)
    rng = np.random.default_rng(0)
    problems = [generator.problem(i // 8) for i in range(count)]
    return [len(p.text) + len(solution(p, rng, hurried_share=0.3, slip_rate=0.1)) + 1 for p in problems]


@pytest.mark.parametrize("budget", [2048, 4096, 8192])
@pytest.mark.parametrize("multiple_of", [1, 4])
def test_heavy_tailed_lengths_balance_and_need_fewer_micro_batches_than_a_fixed_count(budget, multiple_of):
    lengths = heavy_tailed_lengths(512)
    batches = pack(lengths, budget, multiple_of=multiple_of)
    totals = [sum(lengths[i] for i in batch) for batch in batches]
    assert max(totals) - min(totals) <= 0.05 * np.mean(totals)
    fixed_count = budget // max(lengths)
    assert len(batches) < -(-len(lengths) // fixed_count)


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="a sample of 9 tokens exceeds the micro-batch budget of 8"):
        pack([3, 9], 8)


def test_too_few_samples_for_the_multiple_leave_empty_micro_batches():
    assert pack([8, 8, 8], 8, multiple_of=4) == [[0], [1], [2], []]
