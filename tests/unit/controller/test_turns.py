"""Responses that an environment goes on with, through the driver: real engines, real workers, a real journal."""

import asyncio
from contextlib import closing

import numpy as np
import pytest

from sestina.controller.batch import rollout_metrics, to_batch
from sestina.controller.offer import Offer
from sestina.controller.turns import Turns, open_turns, turn_token_of
from sestina.controller.unfinished import Place, read_unfinished, write_unfinished
from sestina.core.errors import ConfigError
from sestina.core.records import NO_TURN
from sestina.data.prompt import Prompt
from sestina.data.sums import ALPHABET
from sestina.models.tokenizer import Tokenizer, write_character_tokenizer
from sestina.policies.events import BatchOffered, Dispatch, Observed, TurnEnded
from sestina.policies.planner import build_planner
from sestina.rewards.environments.config import NO_ENVIRONMENT
from sestina.telemetry.journal import Journal, read_journal
from sestina.telemetry.replay import replay
from tests.conftest import lively_weights, make_shape
from tests.unit.controller.local import LocalRanks, make_driver
from tests.unit.controller.test_batch import chunk
from tests.unit.rewards.test_environments import calculator, tool

SHAPE = make_shape(vocab_size=70)
TURN = 12
LIMIT = 90
PLACE = Place(step=1, version=0, fingerprint="f", digest="d")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_character_tokenizer(folder, ALPHABET)
    return Tokenizer(folder, model_vocab_size=SHAPE.vocab_size)


def offered(*, max_turns=5, max_new_tokens=LIMIT, meta=None):
    rng = np.random.default_rng(2)
    prompts = [
        Prompt(id=str(n), text="", tokens=rng.integers(3, 70, 4 + n).astype(np.int32), label=n, meta=meta or {})
        for n in range(4)
    ]
    return Offer(
        step=1,
        groups=tuple(enumerate(prompts)),
        lengths=((),) * 4,
        forced=((),) * 4,
        num_samples=3,
        max_new_tokens=max_new_tokens,
        temperature=1.0,
        turn_token=TURN,
        max_turns=max_turns,
    )


async def life(folder, tokenizer, offer, config, *, stop_after=None, kept=None, **planner):
    """Roll a batch out, or stop when so many turns have ended; returns its samples."""
    weights = lively_weights(SHAPE, scale=0.08)
    with closing(Journal(folder / "journal.jsonl")) as journal:
        async with open_turns(config, tokenizer, 60.0) as turns, asyncio.timeout(100), asyncio.TaskGroup() as tasks:
            ranks = LocalRanks(SHAPE, weights, 0)
            driver = make_driver(ranks, journal, tasks, 0, tokenizer=tokenizer, turns=turns, **planner)
            pump = tasks.create_task(pumped(ranks))
            try:
                if stop_after is None:
                    return await driver.roll_out(offer, kept)
                batch = driver.start(offer, kept)
                while sum(sample.paused for sample in batch.samples) < stop_after:
                    await asyncio.sleep(0)
                driver.abandon()
                return await driver.suspend(20.0)
            finally:
                pump.cancel()


async def pumped(ranks):
    while True:
        for instance in range(len(ranks.engines)):
            ranks.step(instance)
        await asyncio.sleep(0)


def rolled(*arguments, **changes):
    return asyncio.run(life(*arguments, **changes))


@pytest.fixture(scope="module")
def plain(tmp_path_factory, tokenizer):
    return rolled(tmp_path_factory.mktemp("plain"), tokenizer, offered(), tool("counting"), chunk_tokens=LIMIT)


def tokens_of(samples):
    return {sample.id: sample.tokens.tolist() for sample in samples}


def test_what_is_observed_follows_the_turn_and_is_not_the_models(plain, tokenizer):
    asked = 0
    for sample in plain:
        text, drawn = sample.tokens, sample.drawn
        assert len(text) == len(drawn) == len(sample.logprobs) == sample.num_tokens
        assert drawn.sum() == sample.num_drawn == sample.num_tokens - sum(len(o.tokens) for o in sample.observations)
        ends = np.cumsum([len(part.tokens) for part in sample.parts])
        added = 0
        for observation in sample.observations:
            at = ends[observation.after - 1] + added
            assert text[at - 1] == TURN
            before = tokenizer.decode(text[:at])
            answer = str(len(before)) if len(before) % 3 else ""
            assert tokenizer.decode(text[at : at + len(observation.tokens)]) == answer
            assert not drawn[at : at + len(observation.tokens)].any()
            assert not sample.logprobs[at : at + len(observation.tokens)].any()
            added += len(observation.tokens)
        assert (sample.logprobs[drawn] < 0).all()
        asked += len(sample.observations)
    assert asked > 15
    assert max(len(sample.observations) for sample in plain) == 4, "the last of five turns is not answered"
    assert any(TURN in sample.parts[-1].tokens for sample in plain), "and its token is as any other"


@pytest.mark.parametrize(("kind", "chunk_tokens"), [("group", 7), ("context", 16), ("divided", 5), ("oracle", 33)])
def test_no_scheduler_and_no_chunk_changes_a_token(tmp_path, tokenizer, plain, kind, chunk_tokens):
    samples = rolled(tmp_path, tokenizer, offered(), tool("counting"), kind=kind, chunk_tokens=chunk_tokens)
    assert tokens_of(samples) == tokens_of(plain)
    np.testing.assert_array_equal(to_batch(samples).logprobs, to_batch(plain).logprobs)
    (segment,) = read_journal(tmp_path / "journal.jsonl")
    kinds = [type(entry.event) for entry in segment.entries]
    assert kinds.count(TurnEnded) == kinds.count(Observed) == sum(len(s.observations) for s in samples)
    assert replay(segment, build_planner(kind, chunk_tokens=chunk_tokens, seed=0)) is None


def test_a_batch_says_what_was_drawn_and_metrics_what_was_observed(plain):
    batch = to_batch(plain)
    assert batch.drawn_lengths.tolist() == [sample.num_drawn for sample in plain]
    assert batch.drawn.sum() == sum(sample.num_drawn for sample in plain) < len(batch.drawn)
    metrics = rollout_metrics(plain)
    seen = [observation for sample in plain for observation in sample.observations]
    assert metrics["rollout/turns/mean"] == pytest.approx(1 + len(seen) / len(plain))
    assert metrics["rollout/turns/max"] == 5
    assert metrics["rollout/observed_tokens"] == (~batch.drawn).sum()
    assert metrics["rollout/observations_empty"] == sum(not len(observation.tokens) for observation in seen) > 0
    assert 0 < metrics["rollout/pause_s/p50"] <= metrics["rollout/pause_s/p99"]
    assert metrics["rollout/environment_failures"] == metrics["rollout/observations_cut"] == 0


def test_without_an_environment_nothing_is_said_of_turns(tmp_path, tokenizer):
    offer = offered(max_turns=1)
    samples = rolled(tmp_path, tokenizer, offer, NO_ENVIRONMENT)
    assert to_batch(samples).drawn is None
    assert not any(sample.observations for sample in samples)


def test_a_long_answer_is_cut_and_one_without_room_ends_the_response(tmp_path, tokenizer):
    samples = rolled(tmp_path, tokenizer, offered(meta={"says": "long"}), tool("breaking"))
    assert rollout_metrics(samples)["rollout/reward_timeout"] == 0
    seen = [observation for sample in samples for observation in sample.observations]
    assert {len(observation.tokens) for observation in seen} == {8}
    assert rollout_metrics(samples)["rollout/observations_cut"] == len(seen) > 0
    short = rolled(tmp_path, tokenizer, offered(max_new_tokens=24, meta={"says": "long"}), tool("breaking"))
    full = [sample for sample in short if sample.parts[-1].tokens[-1] == TURN and sample.finish == "length"]
    assert any(sample.num_tokens < 24 for sample in full)
    assert all(sample.num_tokens <= 24 and sample.reward >= 0 for sample in short)


@pytest.mark.parametrize(("room", "observed"), [(1, None), (2, None), (3, 2)])
def test_an_answer_has_to_leave_room_for_a_token(tokenizer, room, observed):
    """The tool answers with the eleven characters' number, two digits."""

    async def answered(sample):
        async with open_turns(tool("counting"), tokenizer, 60.0) as turns:
            return await turns.answer(sample)

    [sample, *_] = offered(max_new_tokens=11 + room).samples(0.0)
    sample.start(Dispatch(request=sample.id, instance=0, max_tokens=11, reason="bound"), now=0.0)
    sample.absorb(chunk(sample.id, [TURN] * 11, finish="turn", end_s=1.0), ahead_s=0.0, now=1.0)
    event = asyncio.run(answered(sample))
    assert event == Observed(request=sample.id, observed_tokens=observed or 0, done=observed is None)
    assert sample.finish == ("length" if observed is None else "turn")
    assert tokenizer.decode(sample.tokens[11:]) == ("" if observed is None else "11")


@pytest.mark.parametrize(
    ("meta", "error"),
    [
        ({"breaks": True}, "environment: ValueError: the tool is broken"),
        ({"says": "strange"}, "the tokenizer does not know 'é'"),
    ],
)
def test_a_response_whose_environment_fails_has_no_reward_and_the_run_goes_on(tmp_path, tokenizer, meta, error):
    samples = rolled(tmp_path, tokenizer, offered(meta=meta), tool("breaking"))
    lost = [sample for sample in samples if sample.finish == "turn"]
    assert len(lost) == rollout_metrics(samples)["rollout/environment_failures"] > 3
    assert all(np.isnan(sample.reward) and error in sample.row().reward_error for sample in lost)
    assert all(sample.reward >= 0 for sample in samples if sample.finish != "turn")


def test_a_stop_while_responses_wait_for_an_answer_loses_nothing(tmp_path, tokenizer, plain):
    stopped = rolled(tmp_path, tokenizer, offered(), tool("counting"), stop_after=3)
    write_unfinished(tmp_path / "kept", PLACE, stopped, 1.0)
    kept = read_unfinished(tmp_path / "kept", PLACE, 2.0)
    samples = rolled(tmp_path, tokenizer, offered(), tool("counting"), kept=kept)
    assert tokens_of(samples) == tokens_of(plain)
    *_, segment = read_journal(tmp_path / "journal.jsonl")
    (begun,) = [e.event.begun for e in segment.entries if isinstance(e.event, BatchOffered)]
    assert sum(each.paused for each in begun) >= 3
    assert replay(segment, build_planner("divided", chunk_tokens=7, seed=0)) is None


def test_a_failed_environment_is_not_asked_again_after_a_stop(tmp_path, tokenizer):
    samples = rolled(tmp_path, tokenizer, offered(meta={"breaks": True}), tool("breaking"))
    write_unfinished(tmp_path / "kept", PLACE, samples, 1.0)
    kept = read_unfinished(tmp_path / "kept", PLACE, 2.0)
    again = rolled(tmp_path, tokenizer, offered(meta={"breaks": True}), tool("breaking"), kept=kept)
    assert tokens_of(again) == tokens_of(samples)
    assert [sample.finish for sample in again] == [sample.finish for sample in samples]


def test_a_turn_ends_with_one_token(tokenizer):
    assert turn_token_of(NO_ENVIRONMENT, tokenizer) == NO_TURN
    assert tokenizer.decode(np.array([turn_token_of(calculator(), tokenizer)])) == "="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("+=", "environment.turn_end: '+=' is 2 tokens of model.path; it must be one other token"),
        ("<eos>", "environment.turn_end: '<eos>' is the end of sequence; it must be one other token"),
        ("!", "the tokenizer does not know '!' of '!'"),
    ],
)
def test_what_cannot_end_a_turn_is_refused(tokenizer, text, said):
    config = calculator()
    with pytest.raises(ConfigError) as error:
        turn_token_of(
            type(config)(**{name: getattr(config, name) for name in config.__slots__} | {"turn_end": text}), tokenizer
        )
    assert said in error.value.violations[0]


def test_time_is_given_to_whoever_answers(tmp_path, tokenizer):
    async def main():
        with closing(Journal(tmp_path / "journal.jsonl")) as journal:
            async with asyncio.TaskGroup() as tasks:
                ranks = LocalRanks(SHAPE, lively_weights(SHAPE), 0)
                turns = Turns(calculator(), None, tokenizer)
                return make_driver(ranks, journal, tasks, 0, turns=turns)._stall_s

    assert asyncio.run(main()) == 60.0 + calculator().timeout_s
