"""Which requests have been met where, held against a table that is searched."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.met import Met

ROWS, KEYS = 4, 6
EVENTS = st.one_of(
    st.tuples(st.just("meet"), st.dictionaries(st.integers(0, ROWS - 1), st.integers(1, KEYS), min_size=1)),
    st.tuples(st.just("leave"), st.integers(1, KEYS)),
)


@given(st.lists(EVENTS, max_size=30))
def test_a_request_is_fresh_until_it_was_met_in_its_row_and_after_it_has_left(events):
    met, table = Met(ROWS), SlotTable(num_slots=ROWS, max_context_tokens=8)
    known = {}  # row by key
    for what, given_ in events:
        if what == "leave":
            met.forget(given_)
            known.pop(given_, None)
            continue
        rows = {row: key for row, key in given_.items() if list(given_.values()).count(key) == 1}
        slots = np.array(sorted(rows), np.int32)
        table.keys[slots] = [rows[row] for row in slots.tolist()]
        fresh = [row for row in slots.tolist() if known.get(rows[row]) != row]
        assert met.num_fresh(table, slots) == len(fresh)
        assert met.fresh(table, slots).tolist() == fresh
        assert not met.num_fresh(table, slots)
        known = {key: row for key, row in known.items() if row not in rows} | {key: row for row, key in rows.items()}
