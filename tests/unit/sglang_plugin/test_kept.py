"""Which tokens are said to be drawn over keys and values of older weights, as SGLang slices them."""

from sestina.sglang_plugin.kept import Kept


def test_tokens_from_an_update_on_are_marked_until_they_are_computed_again():
    kept = Kept()
    kept.begin(3)
    assert kept[0:5] == [0, 0, 0, 1, 1]
    kept.begin(4)  # the next weights
    kept.end(6)
    kept.end(8)
    assert kept[2:9] == [0, 1, 1, 1, 0, 0, 0]
    kept.begin(8)
    assert kept[5:10] == [1, 0, 0, 1, 1]
    assert kept[4:4] == []


def test_what_holds_nothing_is_not_marked():
    kept = Kept()
    kept.end(0)
    assert kept[0:2] == [0, 0]
    kept.begin(0)
    kept.end(0)
    assert kept[0:2] == [0, 0]
