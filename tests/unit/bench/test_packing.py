import numpy as np

from sestina.bench.packing import SETS, LengthSet, measure, pareto_lengths, sums_lengths
from tests.unit.bench.helpers import by_name


def test_every_set_is_measured():
    lines = []
    sets = [
        LengthSet(name="sums", lengths=sums_lengths, budget=8192, num_batches=2),
        LengthSet(name="known", lengths=lambda batch: [6, 1, 1, 6, 2], budget=8, num_batches=1),
    ]
    found = by_name(measure(lines.append, sets))
    assert len(lines) == 3
    assert found["sums: padding, worst of 2"].met
    assert found["sums: imbalance, worst of 2"].met
    assert found["sums: micro-batches over a fixed number's, worst of 2"].met
    assert 0 < found["sums: padding of a fixed number, mean"].value < 1
    # One sample at a time against 6 + 1, 6 + 2, 1: within 8 tokens, two are the fewest and are found.
    assert found["known: micro-batches, mean"].value == 2
    assert found["known: micro-batches over a fixed number's, worst of 1"].value == 2 / 5
    assert found["known: micro-batches over the fewest possible, worst of 1"].value == 1
    assert found["known: imbalance, worst of 1"].value == 0
    assert found["known: padding of a fixed number, mean"].value == 0


def test_equal_lengths_miss_what_is_asked():
    sets = [LengthSet(name="equal", lengths=lambda batch: [4, 4, 4], budget=8, num_batches=1)]
    found = by_name(measure(lambda line: None, sets))
    assert found["equal: micro-batches over a fixed number's, worst of 1"].met is False
    imbalance = found["equal: imbalance, worst of 1"]
    assert (imbalance.value, imbalance.met) == (4 / 6, False)


def test_lengths_are_heavy_tailed_reproducible_and_fit_their_budgets():
    for lengths in (sums_lengths, pareto_lengths):
        assert lengths(3) == lengths(3) != lengths(4)
    assert (len(sums_lengths(0)), len(pareto_lengths(0))) == (512, 512 * 16)
    assert (min(pareto_lengths(0)), max(pareto_lengths(0))) >= (500, 20000)
    assert max(sums_lengths(0)) > 4 * np.median(sums_lengths(0))
    assert all(max(length_set.lengths(0)) <= length_set.budget for length_set in SETS)
