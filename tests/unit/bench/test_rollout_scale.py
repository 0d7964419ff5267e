import pytest

from sestina.bench.rollout import scale


@pytest.mark.slow
def test_context_stays_below_the_oracle_and_comes_near_it_where_less_begins_unknown():
    found = {figure.name.split(": ")[0]: figure.value for figure in scale.figures(lambda _: None, iterations=1)}
    assert [name.partition("simulated, ")[2] for name in found] == [
        "64 groups, KV for 16%",
        "600 groups, KV for 16%",
        "600 groups, KV as reproduced",
    ]
    _, much_room, little_room = found.values()
    assert 0.8 < much_room < little_room <= 1.0
