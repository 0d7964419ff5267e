from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sestina.simulator.siblings import Siblings
from sestina.telemetry.beginnings import beginnings_of

TEXTS = st.lists(st.lists(st.sampled_from([0, 1, 255, 256, 70000]), max_size=6), min_size=1, max_size=8)


def common(one, other):
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(map(len, (one, other)))
    )


@given(TEXTS)
def test_two_numbers_for_each_say_what_every_two_have_in_common(texts):
    found = beginnings_of([np.array(text, np.int32) for text in texts])
    assert [text for _, text in sorted(zip([each.text_rank for each in found], texts, strict=True))] == sorted(texts)
    siblings = Siblings.of(found, [len(text) for text in texts], "here")
    for (one, text), (other, another) in combinations(enumerate(texts), 2):
        shared = common(text, another)
        assert (siblings.common[one][other] if siblings else 0) == shared
    if siblings is not None:
        assert siblings.beginnings == tuple(found)
        mosts = [
            max(common(text, other) for at, other in enumerate(texts) if at != own) for own, text in enumerate(texts)
        ]
        assert [siblings.most(number) for number in range(len(texts))] == mosts
