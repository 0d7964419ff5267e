import asyncio
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from sestina.core.errors import ConfigError
from sestina.rewards.outcome import RewardError
from sestina.rewards.pool import RewardPool
from sestina.rewards.server import read_reward
from sestina.rewards.service.wire import PATH
from tests.unit.rewards.helpers import MODULE, remote_config, running, sample

LIMIT_S = 60
TOKEN = "a-token-of-more-than-16-characters"
FUNCTION = f"kind: function\npath: {MODULE}:obey\nsignature: native\nnum_workers: 2\ntimeout_s: 20\n"


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("TOKEN", TOKEN)


@contextmanager
def serving(folder, *arguments, port=0, reward=FUNCTION):
    (folder / "reward.yaml").write_text(reward)
    command = [sys.executable, "-m", "sestina.rewards.server", str(folder / "reward.yaml"), *arguments]
    command += ["--key-env", "TOKEN", "--port", str(port)]
    environment = os.environ | {"TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process, json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), "--max-body-bytes", "100000") as (_, address):
        yield address


def asked(work):
    async def main():
        async with asyncio.timeout(LIMIT_S):
            return await work()

    return asyncio.run(main())


def test_two_runs_share_a_server(address):
    async def work():
        async with RewardPool(remote_config(address)) as one, RewardPool(remote_config(address)) as other:
            calls = [pool.score(sample("fine", i)) for i in range(20) for pool in (one, other)]
            return await asyncio.gather(*calls)

    outcomes = asked(work)
    assert [outcome.reward for outcome in outcomes] == [i for i in range(20) for _ in range(2)]
    assert {(outcome.kind, outcome.notes) for outcome in outcomes} == {("ok", ())}


def test_a_reward_that_fails_there_fails_here(address):
    async def work():
        async with RewardPool(remote_config(address)) as pool:
            return [await pool.score(sample(response, 1)) for response in ("raise", "exit", "fine")]

    raised, died, fine = asked(work)
    assert (raised.kind, raised.notes, raised.error.splitlines()[0]) == (
        "raised",
        ("remote_raised",),
        "ValueError: no good",
    )
    assert 'raise ValueError("no good")' in raised.error
    assert (died.notes, died.error) == (("remote_died",), "worker died with exit code 3")
    assert math.isnan(died.reward)
    assert fine.reward == 1


def test_a_wrong_token_ends_the_run(address, monkeypatch):
    monkeypatch.setenv("TOKEN", TOKEN[:-1] + "x")

    async def work():
        async with RewardPool(remote_config(address)) as pool:
            await pool.score(sample("fine", 1))

    with pytest.raises(RewardError, match=r"/v1/score refuses the key with status 401: the token is not this server's"):
        asked(work)


def test_a_sample_too_large_is_a_failure_of_its_own(address):
    async def work():
        async with RewardPool(remote_config(address)) as pool:
            return await pool.score(sample("x" * 200_000, 1)), await pool.score(sample("fine", 1))

    large, fine = asked(work)
    assert (large.kind, large.notes) == ("raised", ("http_413",))
    assert fine.reward == 1


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        (None, b"", 401),
        ("Bearer", b"", 401),
        (TOKEN, b"", 401),
        (f"Bearer {TOKEN}\u00e9", b"", 401),
        (f"Bearer {TOKEN}", b"", 400),
        (f"Bearer {TOKEN}", b"\xff" * 99, 400),
        (f"Bearer {TOKEN}", b"\x91" * 50_000, 400),
    ],
)
def test_what_is_no_request(address, token, body, status):
    async def work():
        async with aiohttp.ClientSession() as http:
            headers = {} if token is None else {"Authorization": token}
            async with http.post(address + PATH, data=body, headers=headers) as reply:
                return reply.status

    assert asked(work) == status


def test_health_needs_no_token(address):
    async def work():
        async with aiohttp.ClientSession() as http, http.get(f"{address}/health") as reply:
            return reply.status, await reply.json()

    assert asked(work) == (200, {"status": "ok"})


def test_a_server_that_is_killed_and_started_again_costs_no_reward(tmp_path):
    async def work():
        with serving(tmp_path) as (first, address):
            port = int(address.rpartition(":")[2])
            async with RewardPool(remote_config(address, num_workers=3, timeout_s=50.0)) as pool:
                assert (await pool.score(sample("fine", 1))).notes == ()
                first.kill()
                first.wait()
                waiting = [asyncio.create_task(pool.score(sample("fine", i))) for i in range(3)]
                await asyncio.sleep(0.5)
                again = serving(tmp_path, port=port)
                await asyncio.to_thread(again.__enter__)
                try:
                    return await asyncio.gather(*waiting)
                finally:
                    await asyncio.to_thread(again.__exit__, None, None, None)

    outcomes = asked(work)
    assert [(outcome.reward, outcome.notes) for outcome in outcomes] == [(i, ("retried",)) for i in range(3)]


def test_what_was_taken_is_answered_before_the_end(tmp_path):
    reward = FUNCTION.replace(":obey", ":waits")

    async def work():
        with serving(tmp_path, reward=reward) as (process, address):
            async with RewardPool(remote_config(address, max_attempts=1)) as pool:
                started, release = tmp_path / "started", tmp_path / "release"
                meta = {"started": str(started), "release": str(release)}
                waiting = asyncio.create_task(pool.score(sample(label=5, meta=meta)))
                while not started.exists():
                    await asyncio.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                late = await pool.score(sample(label=6, meta=meta))
                release.touch()
                return await waiting, late, await asyncio.to_thread(process.wait, LIMIT_S)

    taken, late, code = asked(work)
    assert (taken.reward, code) == (5, 0)
    assert late.notes in {("unreachable",), ("http_503",)}


def test_a_full_server_is_asked_again(tmp_path):
    async def work():
        with serving(tmp_path, "--max-waiting", "1") as (_, address):
            async with RewardPool(remote_config(address, num_workers=4)) as pool:
                return await asyncio.gather(*(pool.score(sample("fine", i)) for i in range(4)))

    outcomes = asked(work)
    assert [outcome.reward for outcome in outcomes] == [0, 1, 2, 3]


def test_a_worker_that_cannot_be_started_again_ends_the_server(tmp_path, importable):
    importable("dies", DIES)

    async def work():
        with serving(tmp_path, reward=FUNCTION.replace(f"{MODULE}:obey", "dies:f")) as (process, address):
            async with RewardPool(remote_config(address, max_attempts=1)) as pool:
                outcomes = await asyncio.gather(*(pool.score(sample()) for _ in range(3)))
            return outcomes, await asyncio.to_thread(process.wait, LIMIT_S), process.pid

    outcomes, code, pid = asked(work)
    assert {outcome.notes[0] for outcome in outcomes} <= {"remote_died", "http_500", "http_503", "unreachable"}
    assert code == 1
    assert not running(pid)


DIES = """
import os
from pathlib import Path
Path("starts").open("a").write("x")
if len(Path("starts").read_text()) > 3: os._exit(7)
def f(prompt, response, label, meta): os._exit(5)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--key-env or --key-file must name a token of at least 16 characters"),
        (("--key-env", "SHORT"), "--key-env or --key-file must name a token of at least 16 characters"),
        (("--key-env", "NO_SUCH_TOKEN"), "the environment has no variable 'NO_SUCH_TOKEN'"),
        (("--stop-s", "0", "--key-env", "TOKEN"), "--stop-s: 0.0 is not allowed; at least 0.001"),
        (("num_workers=many", "--key-env", "TOKEN"), "reward.num_workers: Input should be a valid integer"),
        (("path=nowhere:f", "--key-env", "TOKEN"), "reward.path: 'nowhere:f': module 'nowhere' not found"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(arguments, said, tmp_path, monkeypatch):
    monkeypatch.setenv("SHORT", "short")
    (tmp_path / "reward.yaml").write_text(FUNCTION)
    command = [sys.executable, "-m", "sestina.rewards.server", str(tmp_path / "reward.yaml"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot be read as YAML"),
        ("- a", "expected keys and values, found list"),
        ("kind: remote", "reward.kind: 'remote' is not served; one of exact, math, function, code, judge"),
        (FUNCTION + "more: 1\n", "reward.more: "),
        ("kind: math\nnum_workers: 1\n", "reward.timeout_s: Field required"),
    ],
)
def test_a_section_that_is_none(text, said, tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_reward(path)
    assert said in error.value.violations[0]


REWARDS = Path(__file__).parents[3] / "conf" / "reward"


@pytest.mark.parametrize(
    ("kind", "changes", "violation"),
    [
        (
            "code",
            ["run_s=10", "timeout_s=10"],
            "reward.timeout_s: 10.0 is not allowed with reward.run_s 10.0; "
            "above 10, after which slow code has its reward of 0",
        ),
        (
            "judge",
            ["url=http://judge/v1", "model=m", "rubric=r", "min_score=3.0", "max_score=2.0"],
            "reward.max_score: 2.0 is not allowed with reward.min_score 3.0; above 3",
        ),
    ],
)
def test_keys_that_do_not_go_together(kind, changes, violation):
    with pytest.raises(ConfigError) as error:
        read_reward(REWARDS / f"{kind}.yaml", changes)
    assert error.value.violations == [violation]
