import logging
import math

import pytest

from sestina.controller.ledger import ENOUGH, Ledger, Tally
from tests.unit.controller.test_batch import finished


@pytest.fixture
def samples():
    return [finished(1, 0, [[1, 2], [3]], 1.0), finished(1, 1, [[4]], 0.0)]


def test_a_lost_token_is_found(samples):
    ledger = Ledger(window=100, bias_alarm=1.0)
    ledger.restore(Tally(generated=9, trained=4, dropped=5))
    ledger.drop(samples[:1])
    ledger.train(samples, version=3, generated=9 + 3 + 4 + 7, under_way=7)
    assert (ledger.trained, ledger.dropped) == (8, 8)
    with pytest.raises(AssertionError, match="30 tokens generated, 31 trained on, dropped or under way"):
        ledger.train(samples, version=3, generated=30, under_way=11)


def test_staleness_is_of_the_first_token(samples):
    ledger = Ledger(window=100, bias_alarm=1.0)
    ledger.train(samples, version=5, generated=4, under_way=0)
    assert ledger.metrics["async/staleness_max"] == 2
    assert ledger.metrics["async/mixed_version_ratio"] == 0
    assert math.isnan(ledger.metrics["async/selection_bias"]), "nothing was said to have ended"


def test_the_alarm_is_raised_once_and_not_by_a_few(samples, caplog):
    ledger = Ledger(window=10_000, bias_alarm=0.2)
    ledger.end([finished(1, n, [list(range(n + 1))], 1.0) for n in range(40)])
    short = [finished(1, 0, [[1]], 1.0)] * (ENOUGH // 2)
    generated = 0
    with caplog.at_level(logging.WARNING):
        for said in (0, 1, 1):
            generated += len(short)
            ledger.train(short, version=3, generated=generated, under_way=0)
            assert len(caplog.records) == said
    assert "async.bias_alarm is 0.2" in caplog.text
