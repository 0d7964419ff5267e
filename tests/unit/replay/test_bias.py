import numpy as np
import pytest

from sestina.replay.bias import BiasMeter


def distance(generated, trained, window=10_000):
    meter = BiasMeter(window)
    meter.generated(generated)
    meter.trained(trained)
    return meter.distance()


def test_equal_lengths_are_no_distance_apart_whatever_their_order():
    lengths = np.random.default_rng(0).pareto(1.1, 500).astype(int)
    assert distance(lengths, lengths[::-1]) == 0
    assert distance([7] * 20, [7] * 5) == 0


@pytest.mark.parametrize(("kept", "expected"), [(1.0, 0.0), (0.9, 0.1), (0.5, 0.5), (0.1, 0.9)])
def test_training_on_the_shortest_alone_is_as_far_as_what_is_missing(kept, expected):
    lengths = np.arange(1000)
    assert distance(lengths, lengths[: int(1000 * kept)]) == pytest.approx(expected, abs=2e-3)


def test_lengths_outside_of_those_generated_count_too():
    assert distance(range(100), [1000] * 10) == pytest.approx(0.9)
    assert distance(range(100), [-1] * 10) == pytest.approx(0.9)


def test_only_the_latest_count():
    meter = BiasMeter(window=100)
    assert np.isnan(meter.distance())
    meter.generated(range(100))
    meter.trained([0] * 100)
    assert meter.distance() == pytest.approx(0.9)
    meter.trained(range(100))
    assert meter.distance() == 0


def test_shares_of_right_answers_are_compared_by_what_they_are():
    """Prompts of eight answers have nine shares, which fall into as many of the deciles as they can."""
    shares = np.repeat(np.arange(9) / 8, 10)
    assert distance(shares, shares[::2]) == 0
    assert distance(shares, shares[shares > 0.5]) == pytest.approx(5 / 9), "the harder ones are missing"
