from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.kv_pool.room import Demote, Drop, Held, Limits, make_room


def entry(number, tier="dram", num_bytes=10, used_s=None):
    return Held(name=f"{number}", tier=tier, num_bytes=num_bytes, used_s=number if used_s is None else used_s)


def limits(dram, ssd=0):
    return Limits(dram_bytes=dram, ssd_bytes=ssd)


def after(held, room):
    """Take the steps one by one; a demoted entry may only go where there is room at that moment."""
    tiers = {e.name: e for e in held}
    for step in room.steps:
        e = tiers.pop(step.entry.name)
        if isinstance(step, Demote):
            assert e.tier == "dram"
            tiers[e.name] = Held(name=e.name, tier="ssd", num_bytes=e.num_bytes, used_s=e.used_s)
    return list(tiers.values())


def total(held, tier):
    return sum(e.num_bytes for e in held if e.tier == tier)


def test_what_was_used_longest_ago_goes_to_the_ssd_while_it_has_room():
    held = [entry(2), entry(1), entry(3)]
    room = make_room(held, 20, limits(30, 15), ())
    assert (room.tier, room.steps) == ("dram", (Demote(entry=held[1]), Drop(entry=held[0])))


def test_the_ssd_gives_up_what_is_older_and_nothing_that_is_not():
    old, fresh = entry(0, "ssd"), entry(5, "ssd")
    assert make_room([entry(1), old], 10, limits(10, 10), ()).steps == (Drop(entry=old), Demote(entry=entry(1)))
    assert make_room([entry(1), fresh], 10, limits(10, 10), ()).steps == (Drop(entry=entry(1)),)


def test_what_comes_next_stays_and_the_new_entry_goes_to_the_ssd_or_nowhere():
    held = [entry(1), entry(2)]
    assert make_room(held, 10, limits(20), {"1"}).steps == (Drop(entry=held[1]),)
    assert make_room(held, 10, limits(20), {"1", "2"}) is None
    assert make_room(held, 10, limits(20, 10), {"1", "2"}).tier == "ssd"


def test_an_entry_larger_than_a_tier_displaces_nobody_there():
    held = [entry(1), entry(2, "ssd")]
    assert make_room(held, 30, limits(20, 25), ()) is None
    assert make_room(held, 22, limits(20, 25), ()).steps == (Drop(entry=held[1]),)


TIERS = st.sampled_from(["dram", "ssd"])
HELD = st.lists(st.tuples(TIERS, st.integers(1, 40), st.integers(0, 9), st.booleans()), max_size=12)


@given(rows=HELD, num_bytes=st.integers(1, 120), dram=st.integers(0, 200), ssd=st.integers(0, 200))
def test_limits_hold_order_is_kept_and_nothing_leaves_without_need(rows, num_bytes, dram, ssd):
    held, upcoming = [], set()
    most = {"dram": dram, "ssd": ssd}
    for number, (tier, size, used_s, next_up) in enumerate(rows):
        if total(held, tier) + size <= most[tier]:
            held.append(Held(name=str(number), tier=tier, num_bytes=size, used_s=used_s))
            upcoming |= {str(number)} if next_up else set()
    room = make_room(held, num_bytes, limits(dram, ssd), upcoming)
    if room is None:
        for tier, limit in most.items():
            staying = sum(e.num_bytes for e in held if e.tier == tier and e.name in upcoming)
            assert staying + num_bytes > limit
        return
    left = after(held, room)
    assert total(left, room.tier) + num_bytes <= most[room.tier]
    assert all(total(left, tier) <= limit for tier, limit in most.items())
    gone = [step.entry for step in room.steps]
    assert not upcoming & {e.name for e in gone}
    stayed = [e for e in held if e not in gone and e.tier == room.tier and e.name not in upcoming]
    out = [e for e in gone if e.tier == room.tier]
    assert all(e.used_s <= other.used_s for e in out for other in stayed)
    if out:
        assert total(left, room.tier) + num_bytes + out[-1].num_bytes > most[room.tier]
