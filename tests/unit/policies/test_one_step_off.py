from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.one_step_off import OneStepOff


@given(
    steps=st.integers(1, 12),
    trained=st.integers(0, 11),
    streaming=st.booleans(),
    choices=st.lists(st.booleans(), max_size=60),
)
def test_every_step_begins_once_and_at_most_one_version_before_it_is_trained_on(steps, trained, streaming, choices):
    """Whatever ends first, a rollout or a training step."""
    pipeline = OneStepOff(steps=steps, trained=min(trained, steps), streaming=streaming)
    version = rolled_out = min(trained, steps)
    begun = {}
    for rollout_first in [*choices, *[True, False] * steps]:
        for step in pipeline.due(version):
            assert streaming or len(begun) == rolled_out - min(trained, steps), "the last has been rolled out"
            begun[step] = version
        if rollout_first and rolled_out < max(begun, default=0):
            rolled_out += 1
            pipeline.rolled_out()
        elif version < rolled_out:
            version += 1
            assert 0 <= version - 1 - begun[version] <= 1
    assert list(begun) == list(range(min(trained, steps) + 1, steps + 1))
    assert version == steps
