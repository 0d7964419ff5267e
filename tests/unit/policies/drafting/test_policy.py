import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sestina.policies.drafting.aimd import AimdLengths
from sestina.policies.drafting.guard import GuardSettings
from sestina.policies.drafting.ladder import LadderLengths
from sestina.policies.drafting.ledger import Ledger
from sestina.policies.drafting.lengths import FixedLength
from sestina.policies.drafting.mba import MbaLengths
from sestina.policies.drafting.policy import DraftPolicy
from sestina.policies.drafting.step import StepOutcome
from sestina.policies.drafting.thresholds import ThresholdLengths, thresholds_of
from sestina.policies.drafting.toggles import Always, BatchToggle, RooflineToggle, batch_limits_of
from tests.unit.policies.drafting.worlds import INDEX, MODEL, World, view_of

LENGTHS = {
    "fixed": lambda: FixedLength(8),
    "thresholds": lambda: ThresholdLengths(
        thresholds_of(INDEX, batches=(1, 4, 16, 64, 128), sequence_tokens=1000, slack=0.3), max_length=8, max_paths=2
    ),
    "literal": lambda: MbaLengths(mode="literal"),
    "per_cost": lambda: MbaLengths(mode="per_cost"),
    "aimd": lambda: AimdLengths(num_slots=128),
    "ladder": LadderLengths,
}
TOGGLES = {
    "always": Always,
    "batch": lambda: BatchToggle(
        batch_limits_of(INDEX, length=4, sequence_tokens=1000, acceptances=(0.1, 0.4, 0.7), most=128)
    ),
    "roofline": lambda: RooflineToggle(ramp_up=0),
}


GUARD = GuardSettings()
OWED_S = 5e-2
"""Some steps' time, and more than a guard risks at first."""


def policy_of(lengths="fixed", toggle="always", *, cost=INDEX, guard=GUARD):
    return DraftPolicy(LENGTHS[lengths](), TOGGLES[toggle](), cost=cost, max_length=32, guard=guard)


@st.composite
def worlds(draw):
    """A world whose costs the policy misjudges by up to 4, and whose acceptance it cannot foresee."""
    cost = draw(st.sampled_from([INDEX, MODEL]))
    policy = policy_of(draw(st.sampled_from(sorted(LENGTHS))), draw(st.sampled_from(sorted(TOGGLES))), cost=cost)
    factor = draw(st.sampled_from([0.25, 1.0, 4.0]))
    return World(
        policy,
        cost=cost,
        plain_factor=factor,
        speculative_factor=factor * draw(st.floats(0.5, 4.0)),
        noise=draw(st.sampled_from([0.0, 0.02])),
        seed=draw(st.integers(0, 9)),
    )


PHASES = st.lists(
    st.tuples(st.integers(1, 128), st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.99]), st.sampled_from([1.0, 0.5])),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(world=worlds(), phases=PHASES)
def test_speculation_never_loses_more_than_its_share(world, phases):
    """Two percent of plain decoding's time, two steps, and the one that overdraws, at every moment of every world."""
    for batch, world.acceptance, world.offered in phases:
        for _ in range(60):
            world.step(view_of(batch, probes=batch // 8))
            assert world.elapsed_s <= world.most_s


@settings(max_examples=25, deadline=None)
@given(world=worlds(), toggle_on=st.integers(5, 60), batch=st.integers(1, 128))
def test_nor_when_acceptance_falls_whenever_it_is_relied_on(world, toggle_on, batch):
    for _ in range(300):
        world.acceptance = 0.98 if world.policy.reasons["on"] % (2 * toggle_on) < toggle_on else 0.0
        world.step(view_of(batch, probes=batch // 8))

        assert world.elapsed_s <= world.most_s


def test_nor_when_the_measured_median_flatters():
    """Four speculative steps in nine take 3.9 times as long; what is predicted never sees them, the ledger does."""
    world = World(policy_of(), acceptance=0.5)
    for _ in range(1500):
        world.speculative_factor = 3.9 if world.policy.reasons["on"] % 9 > 4 else 1.0
        world.step(view_of(4))
        assert world.elapsed_s <= world.most_s
    assert world.policy.reasons["overdrawn"] > 500


@pytest.mark.parametrize("lengths", sorted(LENGTHS))
def test_it_finds_what_there_is_to_gain(lengths):
    """High acceptance in a small batch: nearly all steps speculate, and pay, under every length policy."""
    world = World(policy_of(lengths), acceptance=0.9)
    for _ in range(400):
        world.step(view_of(4, probes=1))
    assert world.policy.reasons["on"] > 350
    assert world.equal_s / world.elapsed_s > 2


def test_it_comes_on_when_the_tail_begins():
    world = World(policy_of("fixed", "roofline"), acceptance=0.8)
    for batch in (128, 8):
        for _ in range(200):
            world.step(view_of(batch))
        off, on = (world.policy.reasons[reason] for reason in ("roofline", "on"))
    assert off > 150
    assert on > 150


def test_a_wrong_cost_model_is_corrected_both_ways():
    slow = World(policy_of(), acceptance=0.5, speculative_factor=3.0)
    fast = World(policy_of(), acceptance=0.6, speculative_factor=0.5)
    for _ in range(600):
        slow.step(view_of(8))
        fast.step(view_of(48))
    assert slow.equal_s / slow.elapsed_s > 0.98
    assert slow.policy.reasons["on"] < 20
    assert fast.equal_s / fast.elapsed_s > 1.1, "predicted to lose, found to gain"


def test_probes_are_paid_for_beforehand():
    world = World(policy_of(), acceptance=0.0)
    num_probes = 0
    for _ in range(2000):
        before_s = world.policy.allowance_s
        world.step(view_of(16))
        plan = world.plans[-1]
        if plan.reason == "probe":
            num_probes += 1
            assert plan.expected_s - plan.plain_s <= before_s
            assert 0 < np.count_nonzero(plan.lengths) <= 8
    assert 5 < num_probes < 40, "each that loses doubles the wait"


def test_a_new_rollout_is_probed_at_once():
    world = World(policy_of(), acceptance=0.0)
    for _ in range(600):
        world.step(view_of(16))
    world.policy.begin_rollout()
    world.step(view_of(16))
    assert [plan.reason for plan in world.plans[-20:]].count("probe") == 1
    assert world.plans[-1].reason == "probe"


def test_probes_take_turns():
    world = World(policy_of(), acceptance=0.0)
    for _ in range(1000):
        world.step(view_of(16))
    probed = sum(plan.lengths for plan in world.plans if plan.reason == "probe")
    assert (probed > 0).all()


def test_arrears_are_earned_before_a_probe_is_taken():
    """What the index must be told first counts as the probe's loss; steps that nobody decided about earn too."""

    def steps_to_first_probe(arrears_s, rested):
        world = World(policy_of(), acceptance=0.0)
        for step in range(1, 1000):
            world.step(view_of(16, arrears_s=arrears_s), rested=rested)
            if world.plans[-1].reason == "probe":
                return step
        return None

    soon, owing = steps_to_first_probe(0.0, 0), steps_to_first_probe(OWED_S, 0)
    plain_s = INDEX.plain_s(16, 16_000)
    assert soon < owing
    assert ((owing - 1) * GUARD.share + GUARD.first_steps) * plain_s >= OWED_S
    assert steps_to_first_probe(OWED_S, 9) == pytest.approx(owing / 10, abs=soon + 1)
    assert steps_to_first_probe(1.0, 100) is None, "more than may be kept"


def test_plain_steps_are_measured_before_and_between_speculative_ones():
    world = World(policy_of(), acceptance=0.9)
    for _ in range(500):
        world.step(view_of(8))
    reasons = [plan.reason for plan in world.plans]
    first = reasons.index("on")
    assert sum(reason not in ("on", "probe") for reason in reasons[:first]) >= 3
    assert reasons[first:].count("control") == (500 - first) // 51


def test_without_a_guard_the_toggle_decides_alone():
    world = World(policy_of(guard=None), acceptance=0.0)
    for _ in range(20):
        world.step(view_of(128))
    assert world.policy.reasons == {"on": 20}
    assert world.policy.allowance_s is None


@pytest.mark.parametrize("guard", [None, GUARD])
def test_nobody_drafts_beyond_a_limit(guard):
    policy = policy_of("aimd", guard=guard)
    world = World(policy, acceptance=0.95)
    for step in range(120):
        view = view_of(6)
        limits = np.array([0, 1, 2, 3, 50, step % 3])
        view = type(view)(slots=view.slots, probes=view.probes, limits=limits, kv_tokens=view.kv_tokens)
        outcome = world.step(view)
        assert (outcome.plan.lengths <= np.minimum(limits, 32)).all()
    assert policy.plan(view_of(3, limit=0)).reason == "no-room"


def test_equal_calls_give_equal_plans():
    def run():
        world = World(policy_of("per_cost", "roofline"), acceptance=0.7, noise=0.05)
        for batch in (64, 32, 4):
            for _ in range(60):
                world.step(view_of(batch, probes=2))
        return [(plan.reason, plan.lengths.tolist(), plan.expected_s) for plan in world.plans]

    assert run() == run()


@pytest.mark.parametrize(("drafted", "accepted"), [(9, 0), (4, 5)])
def test_an_outcome_that_cannot_be_is_refused(drafted, accepted):
    policy, view = policy_of(guard=None), view_of(1)
    plan = policy.plan(view)
    outcome = StepOutcome(
        view=view, plan=plan, drafted=np.array([drafted]), accepted=np.array([accepted]), draft_tokens=1, seconds=1.0
    )
    with pytest.raises(AssertionError):
        policy.learn(outcome)


@given(steps=st.lists(st.tuples(st.booleans(), st.floats(0.1, 3), st.floats(0.5, 10)), max_size=100))
def test_a_ledger_that_is_asked_before_every_loss_is_overdrawn_by_one_step_at_most(steps):
    ledger = Ledger(share=0.01, most_steps=16, first_steps=2)
    spent = equal = worst = 0.0
    for speculative, tokens, seconds in steps:
        if speculative and ledger.covers(0.0):
            ledger.speculative(plain_s=1.0, tokens_per_request=tokens, seconds=seconds)
            spent, equal, worst = spent + seconds, equal + tokens, max(worst, seconds - tokens)
        else:
            ledger.plain(1.0)
            spent, equal = spent + 1, equal + 1
        assert ledger.allowance_s <= 16
        assert spent <= 1.01 * equal + 2 + worst + 1e-9
