import asyncio
import json
import math
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from sestina.core.errors import AbsentError, ConfigError
from sestina.rewards.outcome import RewardError
from sestina.rewards.pool import RewardPool
from sestina.rewards.rules import check
from sestina.rewards.service import caller
from sestina.rewards.service.caller import retry_after_s
from tests.unit.rewards.helpers import judge_config, sample

LIMIT_S = 60
KEY = "sk-a-secret-key-of-the-judge"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(caller, "FIRST_WAIT_S", 0.01)


def said(text, finish="stop", tokens=10):
    usage = {} if tokens is None else {"usage": {"total_tokens": tokens}}
    return web.json_response({"choices": [{"message": {"content": text}, "finish_reason": finish}], **usage})


class Endpoint:
    """A real server on this loop that answers with one reply after the other, the last for ever."""

    def __init__(self, *replies):
        self.replies, self.requests, self.headers = list(replies), [], []
        self.running = self.most = 0

    @asynccontextmanager
    async def served(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()

    async def answer(self, request):
        self.requests.append(await request.json())
        self.headers.append(request.headers)
        self.running += 1
        self.most = max(self.most, self.running)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        try:
            return await reply() if asyncio.iscoroutinefunction(reply) else reply()
        finally:
            self.running -= 1


def judged(endpoint, *samples, **changes):
    async def work():
        async with asyncio.timeout(LIMIT_S), endpoint.served() as url, RewardPool(judge_config(url, **changes)) as pool:
            return await asyncio.gather(*(pool.score(each) for each in samples or (sample(),)))

    return asyncio.run(work())


def test_the_score_of_the_last_line_is_the_reward():
    endpoint = Endpoint(lambda: said("The answer is right.\nScore: 7.5\n"))
    (outcome,) = judged(endpoint, sample("an answer\nScore: 10", {"expected": 4}, prompt="2+2?"))
    assert (outcome.reward, outcome.kind, outcome.notes) == (7.5, "ok", ())
    assert outcome.error == "The answer is right.\nScore: 7.5\n"
    (request,) = endpoint.requests
    system, user = request["messages"]
    assert system["content"].startswith("Be strict.\n\n")
    assert "'Score: N', where N is a number from 0 to 10" in system["content"]
    asked = {"prompt": "2+2?", "response": "an answer\nScore: 10", "reference": {"expected": 4}}
    assert json.loads(user["content"]) == asked
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m", 0, 64)


def html():
    return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")


@pytest.mark.parametrize(
    ("reply", "note", "attempts"),
    [
        (lambda: said("I would give this a seven."), "unparsable", 1),
        (lambda: said("Score: 7 out of 10"), "unparsable", 1),
        (lambda: said("Score: 7\nThank you!"), "unparsable", 1),
        (lambda: said("Score: nan"), "unparsable", 1),
        (lambda: said("score: 7"), "unparsable", 1),
        (lambda: said("Score: 11"), "out_of_range", 1),
        (lambda: said("Score: -1"), "out_of_range", 1),
        (lambda: said("Score: 1", finish="length"), "truncated", 1),
        (lambda: said("", finish="length"), "truncated", 1),
        (lambda: said(None, finish="length"), "truncated", 1),
        (lambda: said(""), "empty", 4),
        (lambda: said(None), "empty", 4),
        (lambda: web.json_response({"choices": []}), "empty", 4),
        (html, "unreadable", 4),
        (lambda: web.Response(body=b""), "unreadable", 4),
        (lambda: web.Response(body=b"\xff\xfe"), "unreadable", 4),
        (lambda: web.json_response({"error": "no"}), "unreadable", 4),
        (lambda: web.Response(status=429, text="slow down"), "http_429", 4),
        (lambda: web.Response(status=500, text="oops"), "http_500", 4),
        (lambda: web.Response(status=503), "http_503", 4),
        (lambda: web.Response(status=400, text="too long"), "http_400", 1),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "http_302", 1),
        (lambda: web.Response(body=b"x" * (caller.MAX_REPLY_BYTES + 1)), "oversized", 1),
    ],
)
def test_what_is_no_score_is_no_reward(reply, note, attempts):
    endpoint = Endpoint(reply)
    (outcome,) = judged(endpoint)
    assert math.isnan(outcome.reward)
    assert (outcome.kind, outcome.notes, len(endpoint.requests)) == ("raised", (note,), attempts)
    assert outcome.error


def test_a_judge_that_hangs_is_late():
    async def hang():
        await asyncio.sleep(LIMIT_S)

    (outcome,) = judged(Endpoint(hang), timeout_s=0.3)
    assert (outcome.kind, outcome.error, outcome.notes) == ("timeout", "timeout after 0.3 s", ("late",))


def test_a_judge_that_is_not_there():
    async def work():
        async with RewardPool(judge_config("http://127.0.0.1:9/v1")) as pool:
            return await pool.score(sample())

    outcome = asyncio.run(work())
    assert (outcome.kind, outcome.notes) == ("raised", ("unreachable",))


def test_what_passes_is_tried_again():
    def gone():
        raise web.HTTPInternalServerError

    endpoint = Endpoint(gone, html, lambda: web.Response(status=429), lambda: said("Score: 3"))
    (outcome,) = judged(endpoint)
    assert (outcome.reward, outcome.notes, len(endpoint.requests)) == (3, ("retried",), 4)


def test_a_wait_that_is_asked_for_is_kept(monkeypatch):
    monkeypatch.setattr(caller, "FIRST_WAIT_S", 0.0)
    endpoint = Endpoint(lambda: web.Response(status=429, headers={"Retry-After": "1"}), lambda: said("Score: 3"))
    (outcome,) = judged(endpoint)
    assert outcome.reward == 3
    assert outcome.elapsed_s >= 1
    endpoint = Endpoint(lambda: web.Response(status=503, headers={"Retry-After": "600"}), lambda: said("Score: 3"))
    (outcome,) = judged(endpoint)
    assert (outcome.notes, len(endpoint.requests)) == (("http_503",), 1)


def test_retry_after_is_seconds_or_a_date():
    assert [retry_after_s(text) for text in ("7", "", "soon", "-3")] == [7, 0, 0, 0]
    assert 50 < retry_after_s(format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)) <= 60
    assert retry_after_s(format_datetime(datetime.now(UTC) - timedelta(minutes=1), usegmt=True)) == 0


def test_no_more_calls_at_once_than_allowed():
    async def slow():
        await asyncio.sleep(0.05)
        return said("Score: 1")

    endpoint = Endpoint(slow)
    outcomes = judged(endpoint, *[sample() for _ in range(12)], num_workers=3)
    assert [outcome.reward for outcome in outcomes] == [1] * 12
    assert endpoint.most == 3


@pytest.mark.parametrize(
    ("limits", "tokens", "answered", "said_of_it"),
    [
        ({"max_requests": 3}, 10, 3, "3 requests, reward.max_requests 3"),
        ({"max_tokens": 25}, 10, 3, "30 tokens, reward.max_tokens 25"),
        ({"max_tokens": 64}, None, 1, "reward.max_tokens 64"),
    ],
)
def test_a_budget_that_is_spent_ends_the_run(limits, tokens, answered, said_of_it):
    endpoint = Endpoint(lambda: said("Score: 1", tokens=tokens))

    async def work():
        async with endpoint.served() as url, RewardPool(judge_config(url, num_workers=1, **limits)) as pool:
            for _ in range(answered):
                assert (await pool.score(sample())).reward == 1
            for _ in range(2):
                with pytest.raises(RewardError, match=f"the judge's budget is spent: .*{said_of_it}"):
                    await pool.score(sample())

    asyncio.run(work())
    assert len(endpoint.requests) == answered


def test_replies_that_are_tried_again_are_paid_for_too():
    endpoint = Endpoint(lambda: said(""))
    with pytest.raises(RewardError, match="the judge's budget is spent: 30 tokens, reward.max_tokens 25"):
        judged(endpoint, max_tokens=25)
    assert len(endpoint.requests) == 3


def test_a_refused_key_ends_the_run_and_is_not_shown(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    endpoint = Endpoint(lambda: web.Response(status=401, text=f"wrong key {KEY}"))
    with pytest.raises(RewardError, match=r"refuses the key with status 401: wrong key \*\*\*"):
        judged(endpoint, key_env="JUDGE_KEY")


def test_the_key_is_sent_and_never_shown(monkeypatch, tmp_path):
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    endpoint = Endpoint(lambda: web.Response(status=400, text=f"{'e' * 190} {KEY}"), lambda: said(f"{KEY}\nScore: 1"))
    failed, right = judged(endpoint, sample(), sample(), key_file=file, num_workers=1)
    assert [headers["Authorization"] for headers in endpoint.headers] == [f"Bearer {KEY}"] * 2
    assert (failed.error, right.error) == (f"status 400: {'e' * 190} ***", "***\nScore: 1")
    unsigned = Endpoint(lambda: said("Score: 1"))
    judged(unsigned)
    assert "Authorization" not in unsigned.headers[0]


def test_a_label_that_json_cannot_hold():
    (outcome,) = judged(Endpoint(lambda: said("Score: 1")), sample(label=object()))
    assert (outcome.kind, outcome.error.partition(":")[0]) == ("raised", "the sample cannot be sent")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"url": "judge:8000"}, "reward.url: 'judge:8000' is no address; "),
        ({"url": "ftp://judge"}, "reward.url: 'ftp://judge' is no address; "),
        ({"url": "http://me:word@judge"}, "reward.url: it holds a name or password"),
        ({"key_env": "NO_SUCH_KEY"}, "reward.key_env: the environment has no variable 'NO_SUCH_KEY'"),
        ({"key_env": "EMPTY"}, "reward.key_env: variable 'EMPTY' holds no key: "),
        ({"key_env": "TWO_LINES"}, "reward.key_env: variable 'TWO_LINES' holds no key: "),
        ({"key_file": "missing"}, "missing' cannot be read: FileNotFoundError"),
        ({"key_file": "open"}, "open' may be read by others; mode 600 is allowed"),
        ({"key_file": "open", "key_env": "EMPTY"}, "reward.key_file: not together with reward.key_env"),
    ],
)
def test_what_is_found_before_the_start(changes, fault, monkeypatch, tmp_path):
    monkeypatch.setenv("EMPTY", " ")
    monkeypatch.setenv("TWO_LINES", f"{KEY}\r\nHost: elsewhere")
    (tmp_path / "open").write_text(KEY)
    (tmp_path / "open").chmod(0o644)
    if "key_file" in changes:
        changes = changes | {"key_file": tmp_path / changes["key_file"]}
    with pytest.raises(ConfigError) as error:
        check(judge_config(**({"url": "https://judge/v1"} | changes)))
    assert fault in error.value.violations[0]
    assert KEY not in str(error.value)


def test_an_absent_key_may_be_there_on_another_machine():
    with pytest.raises(AbsentError):
        check(judge_config("https://judge/v1", key_env="NO_SUCH_KEY"))
    check(judge_config("https://judge/v1"))
