import math
from dataclasses import replace

import numpy as np
import pytest

from sestina.controller.batch import eval_metrics, rollout_metrics, teaches_nothing, to_batch
from sestina.controller.sample import Sample
from sestina.core.ids import EVAL_GROUPS, RequestId
from sestina.core.records import ChunkResult, VersionSpan
from sestina.data.prompt import Prompt
from sestina.policies.events import Dispatch
from sestina.rewards.outcome import Outcome

NAN = float("nan")


def chunk(request, tokens, *, finish, end_s):
    return ChunkResult(
        id=request,
        tokens=np.array(tokens, np.int32),
        logprobs=-np.array(tokens, np.float32),
        finish=finish,
        version=3,
        submitted_s=end_s - 2,
        started_s=end_s - 1,
        finished_s=end_s,
        prefilled_tokens=4,
        cached_tokens=2,
        preemptions=0,
    )


def finished(group, sample, chunks, reward, *, end_s=10.0, kind="ok"):
    """A sample whose chunks ended a second apart, the last at `end_s` of the controller's clock."""
    request = RequestId(group, sample)
    prompt = Prompt(id=f"p{group}", text="ab", tokens=np.array([7, 8], np.int32), label="", meta={})
    made = Sample(id=request, step=1, prompt=prompt, max_new_tokens=9, temperature=1.0, offered_s=1.0)
    for i, tokens in enumerate(chunks):
        last = i == len(chunks) - 1
        dispatch = Dispatch(request=request, instance=i, max_tokens=5, reason="least-loaded")
        sent = made.start(dispatch, now=2.0 + i)
        assert sent.generated.tolist() == [t for part in chunks[:i] for t in part]
        at_s = end_s - (len(chunks) - 1 - i) - 100
        made.absorb(chunk(request, tokens, finish="stop" if last else "chunk", end_s=at_s), ahead_s=100, now=end_s + 1)
    error = None if kind == "ok" else "it went wrong"
    made.outcome = Outcome(reward=reward, kind=kind, error=error, elapsed_s=0.25)
    made.rewarded_s = end_s + 2
    return made


@pytest.fixture
def samples():
    return [
        finished(40, 0, [[1, 2], [3]], 1.0),
        finished(40, 1, [[4]], 0.0, end_s=5.0),
        finished(41, 0, [[5, 6]], NAN, kind="timeout"),
        finished(41, 1, [[9]], 1.0, end_s=4.0),
    ]


def test_a_batch_holds_samples_in_order(samples):
    batch = to_batch(samples)
    assert batch.groups.tolist() == [0, 0, 1, 1]
    assert batch.prompt_lengths.tolist() == [2, 2, 2, 2]
    assert batch.response_lengths.tolist() == [3, 1, 2, 1]
    assert batch.tokens.tolist() == [7, 8, 1, 2, 3, 7, 8, 4, 7, 8, 5, 6, 7, 8, 9]
    assert batch.logprobs.tolist() == [-1, -2, -3, -4, -5, -6, -9]
    np.testing.assert_array_equal(batch.rewards, np.array([1, 0, NAN, 1], np.float32))


def test_metrics_leave_failed_rewards_out_and_count_them(samples):
    metrics = rollout_metrics(samples)
    assert metrics["rollout/raw_reward"] == pytest.approx(2 / 3)
    assert metrics["rollout/reward_failures"] == 1
    assert metrics["rollout/reward_timeout"] == 1
    assert metrics["rollout/reward_died"] == 0
    assert metrics["rollout/correct_response_len/mean"] == 2
    assert metrics["rollout/response_len/mean"] == pytest.approx(7 / 4)
    assert metrics["rollout/chunks"] == 5
    assert metrics["rollout/prefilled_tokens"] == 20


def test_what_rewards_took_and_what_was_noted_of_them():
    samples = [finished(40, i, [[1]], 1.0, end_s=4.0) for i in range(101)]
    for i, sample in enumerate(samples):
        notes = ("passed",) if i % 4 == 0 else ("time", "isolation_namespaces")
        sample.outcome = Outcome(reward=1.0, kind="ok", error=None, elapsed_s=float(i), notes=notes)
    metrics = rollout_metrics(samples)
    assert [metrics[f"rollout/reward_s/{name}"] for name in ("mean", "p50", "p99")] == [50, 50, 99]
    assert {name: value for name, value in metrics.items() if "noted" in name} == {
        "rollout/reward_noted/passed": 26,
        "rollout/reward_noted/time": 75,
        "rollout/reward_noted/isolation_namespaces": 75,
    }


def test_the_token_hash_sees_every_token(samples):
    changed = [*samples[:3], finished(41, 1, [[8]], 1.0, end_s=4.0)]
    assert rollout_metrics(samples)["rollout/tokens_crc32"] != rollout_metrics(changed)["rollout/tokens_crc32"]


def test_without_a_single_reward_there_is_no_mean():
    metrics = rollout_metrics([finished(1, 0, [[1]], NAN, kind="raised")])
    assert math.isnan(metrics["rollout/raw_reward"])
    assert metrics["rollout/reward_raised"] == 1


def test_in_evaluation_a_failed_reward_is_a_wrong_answer(samples):
    metrics = eval_metrics(samples)
    assert metrics["eval/accuracy"] == 0.5
    assert metrics["eval/reward_failures"] == 1


def test_rows_say_what_happened_on_the_controllers_clock(samples):
    row = samples[0].row()
    assert (row.response_tokens, row.num_chunks, row.finish, row.reward) == (3, 2, "stop", 1.0)
    assert (row.offered_s, row.started_s, row.finished_s, row.rewarded_s) == (1.0, 8.0, 10.0, 12.0)
    assert [chunk.instance for chunk in samples[0].chunks] == [0, 1]
    assert [chunk.dispatched_s for chunk in samples[0].chunks] == [2.0, 3.0]
    failed = samples[2].row()
    assert (failed.reward, failed.reward_error) == (None, "it went wrong")
    assert not row.evaluation
    assert finished(EVAL_GROUPS, 0, [[1]], 1.0).row().evaluation


def test_a_mixed_batch_names_the_version_of_every_token(samples):
    one, other = samples[0], samples[1]
    earlier = (VersionSpan(version=1, num_tokens=1),)
    one.parts[0] = replace(one.parts[0], earlier=earlier, kept_kv=True)
    batch = to_batch([one, other], mixed=True)
    assert batch.versions.tolist() == [1, 3, 3, 3]
    assert batch.kept_kv.tolist() == [False, True, False, False]
    assert to_batch([one, other]).versions is None
    assert (one.row().first_version, one.row().last_version) == (1, 3)


def test_a_group_teaches_nothing_when_the_rewards_it_has_are_equal(samples):
    assert not teaches_nothing(samples[:2])
    assert teaches_nothing(samples[2:])
    assert teaches_nothing(samples[2:3])
