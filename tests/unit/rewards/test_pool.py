import asyncio
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from sestina.core.errors import DeadlineError
from sestina.rewards.outcome import RewardError
from sestina.rewards.pool import RewardPool
from tests.unit.rewards.helpers import EXACT, MATH, function, running, sample

LIMIT_S = 30


def run(config, work, **limits):
    """Open a real pool, do `work` with it, close it."""

    async def main():
        async with asyncio.timeout(LIMIT_S), RewardPool(config, **limits) as pool:
            return await work(pool)

    return asyncio.run(main())


@pytest.mark.parametrize(("config", "response"), [(EXACT, "#### 42"), (MATH, r"\boxed{42}")])
def test_rules_in_a_worker(config, response):
    async def work(pool):
        return [await pool.score(sample(text, "42")) for text in (response, "no")]

    right, wrong = run(config, work)
    assert (right.reward, right.kind, right.error, right.traceback) == (1, "ok", None, None)
    assert (wrong.reward, wrong.kind) == (0, "ok")
    assert 0 <= right.elapsed_s < LIMIT_S


def test_a_label_that_is_no_answer_is_counted(capfd):
    async def work(pool):
        return await pool.score(sample("42", r"\frac{1}{")), pool.counts()

    outcome, counts = run(MATH, work)
    assert outcome.error == r"ValueError: label '\\frac{1}{' cannot be read as an answer"
    assert counts == {"ok": 0, "raised": 1, "timeout": 0, "died": 0}
    assert capfd.readouterr().err == ""


def test_the_pool_survives_everything_a_function_can_do(tmp_path, capfd):
    expected = {
        "raise": ("raised", "ValueError: no good"),
        "sys.exit": ("raised", "SystemExit: bye"),
        "sleep": ("timeout", "timeout after 0.3 s"),
        "spin": ("timeout", "timeout after 0.3 s"),
        "exit": ("died", "worker died with exit code 3"),
        "segfault": ("died", "worker died with exit code -11 (SIGSEGV)"),
    }

    async def work(pool):
        meta = {"path": str(tmp_path / "pid")}
        for response, (kind, error) in expected.items():
            bad, good = await asyncio.gather(pool.score(sample(response, 1, meta)), pool.score(sample("fine", 0.5)))
            assert (bad.kind, bad.error) == (kind, error)
            assert math.isnan(bad.reward)
            assert (good.kind, good.reward) == ("ok", 0.5)
            assert (bad.traceback is not None) == (kind == "raised")
            if response == "raise":
                assert 'raise ValueError("no good")' in bad.traceback
        return pool.counts()

    assert run(function("obey", timeout_s=0.3), work) == {"ok": 6, "raised": 2, "timeout": 2, "died": 2}
    assert not running(int((tmp_path / "pid").read_text()))


def test_what_a_function_prints_goes_to_stderr_and_it_finds_stdin_empty(capfd):
    async def work(pool):
        return await pool.score(sample("print")), await pool.score(sample("fine", 1))

    printed, fine = run(function("obey"), work)
    assert (printed.kind, printed.reward) == ("ok", 0)
    assert fine.reward == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    for text in ("to stdout", "bytes to file descriptor 1", "from a child"):
        assert text in captured.err


@pytest.mark.parametrize(
    ("case", "kind"), [("nan", "raised"), ("text", "raised"), ("nothing", "raised"), ("true", "ok")]
)
def test_no_reward_is_made_up(case, kind):
    outcome = run(function("answers"), lambda pool: pool.score(sample(meta={"case": case})))
    assert outcome.kind == kind
    assert math.isnan(outcome.reward) == (kind != "ok")


def test_one_event_loop_serves_all_calls_of_an_async_function():
    async def work(pool):
        return [(await pool.score(sample())).reward for _ in range(3)]

    assert run(function("same_loop"), work) == [1, 2, 3]


def test_numpy_in_meta_arrives_as_plain_values():
    meta = {
        "scalar": np.int64(3),
        "array": np.arange(4).reshape(2, 2),
        "nested": {"x": np.array([0.5], dtype=np.float32)},
        "flag": np.bool_(True),
    }
    outcome = run(function("plain_types"), lambda pool: pool.score(sample(label=np.float64(0.5), meta=meta)))
    assert (outcome.error, outcome.reward) == (None, 0.5)


@pytest.mark.parametrize("label", [object(), 2**70, "\ud800"])
def test_a_sample_that_cannot_be_sent_is_an_error_of_its_own(label):
    async def work(pool):
        return await pool.score(sample("fine", label)), await pool.score(sample("fine", 1)), pool.counts()

    bad, good, counts = run(function("obey"), work)
    assert bad.kind == "raised"
    assert bad.error.startswith("the sample cannot be sent to a worker: ")
    assert (good.reward, counts["raised"]) == (1, 1)


def test_frames_larger_than_a_pipe_holds():
    async def work(pool):
        return [await pool.score(sample("y" * 3_000_000, meta={"raise": fails})) for fails in (True, False)]

    bad, good = run(function("much"), work)
    assert bad.error == "ValueError: " + "x" * 1_000_000
    assert good.reward == 3_000_000


def test_a_worker_does_not_look_like_a_rank(monkeypatch):
    for name in (
        "PMI_RANK",
        "PMI_FD",
        "PMIX_RANK",
        "MPI_LOCALRANKID",
        "MPIR_CVAR_X",
        "HYDRA_X",
        "OMPI_COMM_WORLD_RANK",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("KEPT", "kept")
    outcome = run(function("surroundings"), lambda pool: pool.score(sample()))
    assert outcome.error == "LookupError: [] [] 1 kept"


def test_samples_are_taken_in_order(tmp_path):
    path = tmp_path / "order"

    async def work(pool):
        await asyncio.gather(*(pool.score(sample("append", i, {"path": str(path)})) for i in range(50)))

    run(function("obey"), work)
    assert path.read_text().split() == [str(i) for i in range(50)]


def test_workers_work_at_the_same_time(tmp_path):
    async def work(pool):
        meta = {"path": str(tmp_path)}
        return await asyncio.gather(*(pool.score(sample("meet", i, meta)) for i in range(2)))

    assert [outcome.reward for outcome in run(function("obey", num_workers=2), work)] == [0, 1]


def test_callers_that_give_up_leave_the_pool_intact(tmp_path):
    path = tmp_path / "order"

    async def work(pool):
        waiting = [asyncio.create_task(pool.score(sample("append", i, {"path": str(path)}))) for i in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        return [type(outcome).__name__ for outcome in outcomes], await pool.score(sample("fine", 5))

    names, last = run(function("obey"), work)
    assert names == ["Outcome", "CancelledError", "Outcome"]
    assert last.reward == 5
    assert path.read_text().split() == ["0", "2"]


@pytest.mark.parametrize("escapes", [False, True])
def test_what_a_worker_started_ends_with_it_or_does_not_hold_it_up(tmp_path, escapes):
    path = tmp_path / "child"

    async def work(pool):
        meta = {"path": str(path), "escapes": escapes}
        return await pool.score(sample("leave a child", meta=meta)), await pool.score(sample("fine", 1))

    slow, fine = run(function("obey", timeout_s=0.5), work)
    assert (slow.kind, fine.reward) == ("timeout", 1)
    child = int(path.read_text())
    assert running(child) == escapes
    if escapes:
        os.kill(child, signal.SIGKILL)


def test_closing_ends_busy_workers_and_whoever_waits(tmp_path):
    path = tmp_path / "pid"

    async def main():
        async with asyncio.timeout(LIMIT_S):
            async with RewardPool(function("obey", timeout_s=60.0)) as pool:
                waiting = [
                    asyncio.create_task(pool.score(sample("spin", meta={"path": str(path)}))),
                    asyncio.create_task(pool.score(sample("fine", 1))),
                ]
                while not path.exists() or not path.read_text():
                    await asyncio.sleep(0.01)
            for task in waiting:
                with pytest.raises(RewardError, match="the reward pool is closed"):
                    await task
            with pytest.raises(RewardError, match="the reward pool is closed"):
                await pool.score(sample())

    asyncio.run(main())
    assert not running(int(path.read_text()))


def test_a_pool_that_is_not_open_refuses():
    with pytest.raises(RewardError, match="not open"):
        asyncio.run(RewardPool(EXACT).score(sample()))


def test_a_worker_that_is_not_ready_in_time(importable):
    importable("slow_to_import", "import time; time.sleep(60)")
    with pytest.raises(DeadlineError, match=r"waited 0.5 s for a reward worker to load its rule"):
        run(function("slow_to_import:f"), None, start_limit_s=0.5)


def test_a_worker_that_cannot_load_its_rule(importable):
    importable("broken", "x = 1 / 0")
    with pytest.raises(RewardError, match=r"cannot load its rule: ZeroDivisionError(.|\n)*broken.py"):
        run(function("broken:f"), None)


DIES_AT_FIRST = """
import os, sys
from pathlib import Path
Path("starts").open("a").write("x")
if len(Path("starts").read_text()) {condition}:
    sys.stderr.write("its last words")
    sys.stderr.flush()
    os._exit(7)
def f(prompt, response, label, meta):
    os._exit(5) if response == "exit" else None
    return 1
"""


def test_a_worker_that_dies_on_every_start(importable):
    importable("dies", DIES_AT_FIRST.format(condition="> 0"))
    with pytest.raises(RewardError, match=r"died 3 times before it was ready; .* exit code 7, .*\nits last words"):
        run(function("dies:f"), None)
    assert Path("starts").read_text() == "xxx"


def test_a_worker_that_dies_twice_is_started_again(importable):
    importable("dies", DIES_AT_FIRST.format(condition="< 3"))
    assert run(function("dies:f"), lambda pool: pool.score(sample())).reward == 1


def test_a_worker_that_cannot_be_started_again_ends_the_pool(importable):
    importable("dies", DIES_AT_FIRST.format(condition="> 1"))

    async def work(pool):
        first, *others = [asyncio.create_task(pool.score(sample(response))) for response in ("exit", "fine", "fine")]
        assert (await first).kind == "died"
        for other in others:
            with pytest.raises(RewardError, match="died 3 times"):
                await other
        with pytest.raises(RewardError, match="died 3 times"):
            await pool.score(sample())

    run(function("dies:f"), work)
