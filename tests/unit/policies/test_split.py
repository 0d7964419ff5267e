import pytest
from hypothesis import given
from hypothesis import strategies as st

from sestina.policies.split import MeasuredStep, Share, propose, whole_shares

SECONDS = st.floats(0, 1e5)
SIZES = st.sampled_from([1, 2, 4, 8])


@given(
    sizes=st.tuples(SIZES, SIZES),
    counts=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    spans=st.tuples(SECONDS, SECONDS, SECONDS),
    overlapping=st.booleans(),
)
def test_a_proposal_is_whole_and_never_worse_than_what_was_measured(sizes, counts, spans, overlapping):
    instance_gpus, replica_gpus = sizes
    share = Share(rollout_gpus=instance_gpus * counts[0], trainer_gpus=replica_gpus * counts[1])
    measured = MeasuredStep(share=share, rollout_s=spans[0], train_s=spans[1], weights_s=spans[2])
    gpus = share.rollout_gpus + share.trainer_gpus
    shares = whole_shares(gpus, instance_gpus=instance_gpus, replica_gpus=replica_gpus)
    assert share in shares
    found = propose(measured, shares, overlapping=overlapping)
    assert found.rollout_gpus + found.trainer_gpus == gpus
    assert (found.rollout_gpus % instance_gpus, found.trainer_gpus % replica_gpus) == (0, 0)
    found_s = measured.step_s(found, overlapping=overlapping)
    assert found_s <= measured.step_s(share, overlapping=overlapping)
    assert all(found_s <= measured.step_s(other, overlapping=overlapping) for other in shares)


@pytest.mark.parametrize(("overlapping", "then"), [(False, (4, 4)), (True, (4, 4))])
def test_a_trainer_that_takes_longer_gets_more(overlapping, then):
    measured = MeasuredStep(share=Share(rollout_gpus=6, trainer_gpus=2), rollout_s=20, train_s=60, weights_s=1)
    found = propose(measured, whole_shares(8, instance_gpus=1, replica_gpus=2), overlapping=overlapping)
    assert (found.rollout_gpus, found.trainer_gpus) == then
    assert measured.step_s(found, overlapping=overlapping) == pytest.approx(31 if overlapping else 61)


def test_what_overlaps_is_balanced_and_what_does_not_is_not():
    measured = MeasuredStep(share=Share(rollout_gpus=50, trainer_gpus=50), rollout_s=90, train_s=10, weights_s=0)
    shares = whole_shares(100, instance_gpus=1, replica_gpus=1)
    ahead, behind = (propose(measured, shares, overlapping=overlapping) for overlapping in (True, False))
    assert (ahead.rollout_gpus, behind.rollout_gpus) == (90, 75)  # r / t, and its square root


def test_a_tie_changes_nothing():
    measured = MeasuredStep(share=Share(rollout_gpus=6, trainer_gpus=2), rollout_s=0, train_s=0, weights_s=1)
    shares = (measured.share, *whole_shares(8, instance_gpus=1, replica_gpus=1))
    assert propose(measured, shares, overlapping=False) == measured.share


def test_more_gpus_are_shared_by_what_fewer_took():
    measured = MeasuredStep(share=Share(rollout_gpus=6, trainer_gpus=2), rollout_s=10, train_s=30, weights_s=0)
    share = propose(measured, whole_shares(16, instance_gpus=2, replica_gpus=2), overlapping=True)
    assert (share.rollout_gpus, share.trainer_gpus) == (8, 8)
    assert measured.step_s(share, overlapping=True) == 7.5


def test_shares_that_are_not_whole_are_not_there():
    found = whole_shares(128, instance_gpus=8, replica_gpus=32)
    assert [share.trainer_gpus for share in found] == [32, 64, 96]
    assert whole_shares(8, instance_gpus=8, replica_gpus=1) == []
    with pytest.raises(AssertionError, match="rollout_gpus 0, at least 1"):
        Share(rollout_gpus=0, trainer_gpus=1)
