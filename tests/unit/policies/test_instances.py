from hypothesis import given
from hypothesis import strategies as st

from sestina.core.ids import RequestId
from sestina.policies.events import InstanceUp, KvReport
from sestina.policies.instances import Instances

SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), min_size=1, max_size=6)
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 200), st.integers(0, 99)), max_size=80)


def least_loaded(instances, tokens):
    """What is meant: of all that have room, fewest pages promised, then fewest requests, then the first."""
    fitting = [each for each in instances if each.fits(tokens)]
    return min(((each.reserved_pages, each.num_running, each.id) for each in fitting), default=(0, 0, None))[2]


@given(sizes=SIZES, alike=st.booleans(), steps=STEPS)
def test_the_least_loaded_instance_with_room_is_chosen(sizes, alike, steps):
    instances, running = Instances(), []
    for number, (pages, max_running) in enumerate([sizes[0]] * len(sizes) if alike else sizes):
        up = InstanceUp(instance=number, kv_capacity_tokens=4 * pages, page_tokens=4, max_running=max_running)
        instances.add(up)
    for number, (begins, tokens, which) in enumerate(steps):
        if running and not begins:
            instances.release(*running.pop(which % len(running)))
        if which % 3 == 0:
            told = which % len(instances)
            peak = 4 * (tokens % (1 + instances[told].promised_pages))
            capacity = 4 * instances[told].num_pages + 4 * (which % 2)
            instances.learn(told, KvReport(peak_tokens=peak, capacity_tokens=capacity))
        chosen = instances.choose(tokens, home=None, within=0)
        assert chosen == least_loaded(instances, tokens)
        if chosen is not None:
            running.append((chosen, RequestId(0, number)))
            instances.reserve(*running[-1], tokens)
    assert instances.ids == sorted(instance.id for instance in instances)
