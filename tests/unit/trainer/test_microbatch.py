from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sestina.trainer import microbatch
from sestina.transport.messages import SampleBatch


def batch_of(lengths, groups=None):
    """Samples of (prompt, response) lengths; token i of sample s is 100 s + i, its logprob the negative of that."""
    tokens = [100 * s + np.arange(prompt + response) for s, (prompt, response) in enumerate(lengths)]
    drawn = [-row[prompt:] for row, (prompt, _) in zip(tokens, lengths, strict=True)]
    return SampleBatch(
        groups=np.array(range(len(lengths)) if groups is None else groups, np.int32),
        prompt_lengths=np.array([p for p, _ in lengths], np.int32),
        response_lengths=np.array([r for _, r in lengths], np.int32),
        tokens=np.concatenate(tokens).astype(np.int32),
        logprobs=np.concatenate(drawn).astype(np.float32),
        rewards=np.zeros(len(lengths), np.float32),
    )


def aligned(lengths, counted=None, groups=None):
    n = len(lengths)
    counted = np.ones(n, np.bool_) if counted is None else np.array(counted)
    return microbatch.align(batch_of(lengths, groups), np.arange(n, dtype=np.float32) + 1, counted)


def build(samples, chosen, **changes):
    arguments = {
        "budget": 64,
        "replicas": 1,
        "replica": 0,
        "loss_mean": "token",
        "pad_to": 1,
        "device": torch.device("cpu"),
    }
    return microbatch.micro_batches(samples, chosen, **{**arguments, **changes})


def test_every_response_token_is_predicted_by_the_position_before_it():
    samples = aligned([(2, 3), (1, 1)])
    assert samples.tokens.tolist() == [0, 1, 2, 3, 4, 100, 101]
    assert samples.targets.tolist() == [1, 2, 3, 4, 0, 101, 0]
    assert samples.responses.tolist() == [0, 1, 1, 1, 0, 1, 0]
    assert samples.logprobs.tolist() == [0, -2, -3, -4, 0, -101, 0]
    assert samples.advantages.tolist() == [0, 1, 1, 1, 0, 2, 0]


def test_what_was_observed_is_read_and_not_trained_on():
    batch = msgspec.structs.replace(batch_of([(2, 4), (1, 2)]), drawn=np.array([1, 0, 0, 1, 1, 1], np.bool_))
    samples = microbatch.align(batch, np.array([1, 2], np.float32), np.array([True, True]))
    assert samples.tokens.tolist() == [0, 1, 2, 3, 4, 5, 100, 101, 102]
    assert samples.responses.tolist() == [0, 1, 0, 0, 1, 0, 1, 1, 0]
    assert samples.advantages.tolist() == [0, 1, 0, 0, 1, 0, 2, 2, 0]
    assert samples.response_lengths.tolist() == [2, 2]
    assert build(samples, [0, 1])[0].denominator == 4
    (by_sequence,) = build(samples, [0, 1], loss_mean="sequence")
    assert by_sequence.policy.weights.tolist() == [0, 0.5, 0, 0, 0.5, 0, 0.5, 0.5, 0]


def test_a_sample_that_does_not_count_has_no_weight():
    samples = aligned([(2, 3), (1, 1)], counted=[False, True])
    assert samples.responses.tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert samples.response_lengths.tolist() == [0, 1]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12),
    replicas=st.integers(1, 3),
    pad_to=st.sampled_from([1, 4]),
    loss_mean=st.sampled_from(["token", "sequence"]),
    data=st.data(),
)
def test_replicas_share_every_sample_and_the_denominator(lengths, replicas, pad_to, loss_mean, data):
    counted = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    samples = aligned(lengths, counted)
    shares = [
        build(samples, range(len(lengths)), replicas=replicas, replica=r, pad_to=pad_to, loss_mean=loss_mean)
        for r in range(replicas)
    ]
    assert len({len(share) for share in shares}) == 1
    batches = [batch for share in shares for batch in share]
    assert sorted(i for batch in batches for i in batch.samples) == list(range(len(lengths)))
    responses = [r for (_, r), counts in zip(lengths, counted, strict=True) if counts]
    whole = sum(responses) if loss_mean == "token" else len(responses)
    assert sum(batch.denominator for batch in batches) == whole
    assert float(sum(batch.policy.weights.sum() for batch in batches)) == pytest.approx(whole)
    for batch in batches:
        bounds = batch.packing.cu_seqlens_q.tolist()
        assert bounds[-1] == batch.tokens.numel() == batch.targets.numel()
        assert batch.tokens.numel() % pad_to == 0
        assert batch.packing.max_seqlen_q == max(b - a for a, b in pairwise(bounds))
        for start, sample in zip(bounds, batch.samples, strict=False):
            assert batch.tokens[0, start] == 100 * sample
            assert batch.positions[0, start] == 0


def test_minibatches_are_whole_groups():
    samples = aligned([(1, 1)] * 8, groups=[0, 0, 1, 1, 2, 2, 3, 3])
    assert microbatch.minibatches(samples, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert microbatch.minibatches(samples, 4) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_tokens_know_their_age_and_sequences_what_belongs_together():
    batch = msgspec.structs.replace(
        batch_of([(2, 3), (1, 1)]),
        versions=np.array([4, 5, 5, 3], np.int32),
        kept_kv=np.array([False, True, False, False]),
    )
    samples = microbatch.align(batch, np.ones(2, np.float32), np.ones(2, np.bool_), version=5)
    assert samples.ages.tolist() == [0, 1, 0, 0, 0, 2, 0]
    assert samples.kept_kv.tolist() == [False, False, True, False, False, False, False]
    [made] = build(samples, [0, 1], pad_to=4)
    assert made.policy.sequences.tolist() == [0, 0, 0, 0, 0, 1, 1, 2]
    assert made.policy.fresh.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_a_batch_that_names_no_versions_is_fresh():
    [made] = build(aligned([(2, 3), (1, 1)]), [0, 1])
    assert made.policy.fresh.tolist() == made.policy.responses.tolist()
