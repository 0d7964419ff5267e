import pytest

from sestina.bench.rollout import ranks
from tests.unit.bench.helpers import by_name

TAKEN = {"group": (1.0, 1.05), "divided": (2.0, 1.7), "context": (1.8, 1.75)}
ORDERS = "real: orders of schedulers, real and emulated"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def test_a_rank_with_a_core_of_its_own_is_asked_to_be_as_its_emulation():
    found = by_name(list(ranks._compared(1, TAKEN)))
    off = {name: found[f"1 real, {name}: emulated differs by"] for name in TAKEN}
    assert {name: figure.value for name, figure in off.items()} == pytest.approx(
        {"group": 0.05, "divided": 0.15, "context": 0.05 / 1.8}
    )
    assert {name: figure.met for name, figure in off.items()} == {"group": True, "divided": False, "context": True}
    assert (found[f"1 {ORDERS}"].value, found[f"1 {ORDERS}"].met) == (2, False)


def test_ranks_that_share_cores_are_asked_nothing():
    found = by_name(list(ranks._compared(3, TAKEN)))
    assert {figure.must for figure in found.values()} == {None}
    assert found[f"3 {ORDERS}"].value == 2
