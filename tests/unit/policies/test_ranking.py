from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.ranking import SPARE, Ranking

CHANGES = st.lists(st.tuples(st.sampled_from(["put", "drop", "first"]), st.integers(0, 5), st.integers(-3, 3)))


@given(changes=CHANGES)
def test_it_is_a_sorted_list_of_the_latest_keys(changes):
    ranking, keys = Ranking(), {}
    for turn, (change, item, key) in enumerate(changes):
        if change == "put":
            ranking.put(item, key)
            keys[item] = (key, turn)
        elif change == "drop":
            ranking.drop(item)
            keys.pop(item, None)
        assert ranking.first() == min(keys, key=keys.__getitem__, default=None)
        assert len(ranking) == len(keys)


def test_places_left_behind_do_not_pile_up():
    ranking = Ranking()
    for turn in range(10_000):
        ranking.put(turn % 10, -turn)
    assert ranking._num_places <= 2 * 10 + SPARE
    assert ranking.first() == 9
