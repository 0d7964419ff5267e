"""Runs whose instances draft from each other's responses: no token differs, whatever becomes of the servers."""

import contextlib
import os
import signal
import stat

import psutil
import pytest

from tests.integration.worlds import finish, small_model, train, training, wait_for

pytestmark = pytest.mark.mpi

WORLD = {"rollout__num_instances": 2, "rollout__engine__max_running": 2, "rollout__temperature": 0.02}
"""Responses of a group are much alike: what one instance says is what the other is about to."""
DRAFT = {"draft__source": "grouped", "draft__length": "fixed", "draft__guard": "false", "draft__min_token_prob": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory, model):
    run = train(tmp_path_factory.mktemp("plain") / "run", model, **WORLD)
    assert run.code == 0, run.output
    return run


def same_tokens(run, plain):
    return run.metric("rollout/tokens_crc32") == plain.metric("rollout/tokens_crc32")


def servers_of(process):
    """Draft servers below the launcher."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # gone meanwhile
            found += [child] * ("sestina.drafting.server" in child.cmdline())
    return found


def test_instances_draft_from_each_other_and_a_killed_server_is_replaced(tmp_path, model, plain):
    with training(tmp_path / "run", model, draft__servers=2, **WORLD, **DRAFT) as (process, run):
        wait_for(process, run, lambda status: status.phase.startswith("rollout") and servers_of(process))
        keys = list(run.dir.glob("draft/*/*.key"))
        modes = {stat.S_IMODE(path.stat().st_mode) for path in keys}
        servers = servers_of(process)
        os.kill(servers[0].pid, signal.SIGKILL)
        finish(process, run)
    assert run.code == 0, run.output
    assert (len(keys), modes, len(servers)) == (2, {0o600}, 2)
    assert same_tokens(run, plain)
    assert run.model(2) == plain.model(2)
    assert run.metric("spec/service_restarts") == [1, 1]
    assert run.metric("spec/service_lost") == [0, 0]
    first, last = run.metric("spec/service_tokens_taken_over")
    assert 0 < first < last
    assert run.output.count("starting another") == 1
    _, alive = psutil.wait_procs(servers, timeout=5)
    assert not alive
    assert not list(run.dir.glob("draft/*"))


@pytest.mark.slow
def test_a_run_goes_on_without_servers_that_cannot_be_started(tmp_path, model, plain, monkeypatch):
    (tmp_path / "path").mkdir()
    refusing = "import sys\nif 'sestina.drafting.server' in sys.orig_argv:\n    sys.exit(3)\n"
    (tmp_path / "path/sitecustomize.py").write_text(refusing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    run = train(tmp_path / "run", model, draft__servers=1, **WORLD, **DRAFT)
    assert run.code == 0, run.output
    assert same_tokens(run, plain)
    assert run.metric("spec/service_lost") == [1, 1]
    assert run.metric("spec/service_replies") == [0, 0]
    assert min(run.metric("spec/accepted_tokens")) > 0
    assert run.output.count("is given up") == 1
