from hypothesis import given
from hypothesis import strategies as st

from sestina.data.cursor import Cursor


@given(seed=st.integers(0, 2**40), num_prompts=st.integers(1, 40), draws=st.lists(st.integers(0, 50), max_size=6))
def test_each_epoch_draws_every_prompt_once_however_it_is_cut(seed, num_prompts, draws):
    whole = Cursor(seed=seed, num_prompts=num_prompts).draw(sum(draws))
    cursor, pieces = Cursor(seed=seed, num_prompts=num_prompts), []
    for count in draws:
        pieces += cursor.draw(count)
        cursor = Cursor.restore(cursor.state())
    assert pieces == whole
    for start in range(0, len(whole) - num_prompts + 1, num_prompts):
        assert sorted(whole[start : start + num_prompts]) == list(range(num_prompts))
    assert cursor.epoch == len(whole) // num_prompts


def test_epochs_and_seeds_differ():
    cursor = Cursor(seed=1, num_prompts=50)
    first, second = cursor.draw(50), cursor.draw(50)
    assert first != second
    assert first != Cursor(seed=2, num_prompts=50).draw(50)
