"""Every experiment: the papers' figures, what is foreseen of it, and its dry run, without weights, data or GPUs."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from sestina.cluster.foresee import presets_of
from sestina.cluster.show import describe, show_jobs
from sestina.cluster.submit import plan_jobs, submit_jobs
from sestina.config.fit import forecast
from sestina.config.load import load
from sestina.config.resolved import read_resolved
from sestina.controller.preflight import inspect
from sestina.core.errors import ConfigError
from tests.unit.cluster.jobs import EXPERIMENTS
from tests.unit.config.helpers import CONF, composed

PAPERS = {
    # prompts, responses each, temperature, longest response, GPUs, GPUs of an instance
    "seer_moonlight": (400, 8, 1.0, 65_536, 32, 1),
    "seer_qwen72b": (600, 16, 0.8, 40_960, 128, 8),
    "seer_kimi_k2": (800, 8, 1.0, 98_304, 512, 32),
    "areal_1p5b": (512, 16, 1.0, 27_648, 16 * 8, 1),
    "areal_7b": (512, 16, 1.0, 27_648, 24 * 8, 1),
    "areal_14b_code": (512, 16, 1.0, 27_648, 32 * 8, 2),
    "areal_32b_code": (512, 16, 1.0, 27_648, 48 * 8, 4),
    "rhymerl_8b": (8192, 16, 1.0, 16_384, 16 * 8, 2),
    "rhymerl_14b": (8192, 16, 1.0, 16_384, 16 * 8, 2),
    "rhymerl_32b": (8192, 16, 1.0, 16_384, 16 * 8, 4),
    "efficientrollout_7b": (128, 8, 1.0, 8192, 8, 1),
    "efficientrollout_8b": (128, 8, 1.0, 8192, 8, 1),
    "efficientrollout_14b": (128, 8, 1.0, 8192, 8, 1),
}
STALENESS = {"areal_1p5b": 8, "areal_7b": 8, "areal_14b_code": 4, "areal_32b_code": 4}
"""AReaL's eta: 8 for mathematics, 4 for code."""

NOT_CARRIED = {
    "seer_moonlight": ["'DeepseekV3ForCausalLM' with 64 experts and latent attention"],
    "seer_kimi_k2": ["'DeepseekV3ForCausalLM' with 384 experts and latent attention", "8 instances of 32 GPUs"],
    "rhymerl_8b": ["'Qwen3ForCausalLM'"],
    "rhymerl_14b": ["'Qwen3ForCausalLM'"],
    "efficientrollout_8b": ["'LlamaForCausalLM'"],
}


def experiment(name, tmp_path):
    """With an engine's interpreter that is there, whether or not SGLang's is."""
    return load(composed(f"+exp={name}", f"dir={tmp_path / name}", f"rollout.engine.python={sys.executable}"))


def console():
    return Console(file=io.StringIO(), soft_wrap=True)


@pytest.fixture(scope="module")
def presets():
    return presets_of(CONF)


def test_every_experiment_is_listed():
    assert set(EXPERIMENTS) == set(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_has_the_papers_figures(name, tmp_path):
    config = experiment(name, tmp_path)
    algorithm, rollout, cluster = config.algorithm, config.rollout, config.cluster
    assert config.name == name
    assert (
        algorithm.batch_size // algorithm.group_size,
        algorithm.group_size,
        rollout.temperature,
        rollout.max_new_tokens,
        cluster.gpus,
        rollout.engine.tensor_parallel,
    ) == PAPERS[name]


@pytest.mark.parametrize("name", PAPERS)
def test_areal_alone_is_asynchronous_by_its_bound_and_objective(name, tmp_path):
    config = experiment(name, tmp_path)
    if name not in STALENESS:
        assert config.run.mode == ("pipelined" if name.startswith("rhymerl") else "sync")
        return
    algorithm, limits = config.algorithm, config.async_
    assert (config.run.mode, limits.max_staleness) == ("async", STALENESS[name])
    assert (limits.keep_kv, limits.overdue) == (False, "wait")
    assert (algorithm.kind, algorithm.proximal, algorithm.minibatches) == ("ppo", "recomputed", 4)


@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith("rhymerl")])
def test_rhymerl_is_a_step_ahead_and_balances_by_history(name, tmp_path):
    rollout = experiment(name, tmp_path).rollout
    assert (rollout.scheduler, rollout.ranking_groups) == ("histopipe", 16)


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_is_in_order_and_what_is_not_carried_is_said(name, tmp_path):
    found = inspect(experiment(name, tmp_path))
    assert found.wrong == ()
    assert any(line.startswith("model.path: ") for line in found.absent)
    expected = NOT_CARRIED.get(name, [])
    assert len(found.unsupported) == len(expected)
    assert all(part in line for part, line in zip(expected, found.unsupported, strict=True))


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_fits_its_gpus(name, tmp_path):
    foreseen = forecast(experiment(name, tmp_path))
    assert foreseen.trainer.total <= foreseen.trainer_limit
    assert foreseen.num_longest >= 16


@pytest.mark.parametrize("name", PAPERS)
def test_a_dry_run_needs_neither_weights_nor_data(name, tmp_path, presets):
    plans, shown = plan_jobs([experiment(name, tmp_path)]), console()
    if name in NOT_CARRIED:
        with pytest.raises(ConfigError, match="not carried by"):
            show_jobs(plans, shown, presets)
    else:
        show_jobs(plans, shown, presets)
    said, folder = shown.file.getvalue(), plans[0].folder / "dry-run"
    assert (folder / "job.sh").read_text() == plans[0].script
    assert (folder / "job.sh").read_text() in said
    assert "needed before it is submitted: model.path: models/" in said
    assert said.endswith("nothing was submitted\n")
    assert read_resolved(folder / "config.yaml") == plans[0].config
    foreseen = (folder / "prediction.txt").read_text()
    assert foreseen in said
    assert plans[0].config.run.mode != "sync" or foreseen.startswith("predicted on H")


def test_what_is_foreseen_is_shown(tmp_path):
    (plan,) = plan_jobs([experiment("seer_qwen72b", tmp_path)])
    lines = describe(plan).splitlines()
    assert lines[-6:] == [
        "128 GPUs, 3:1: 96 roll out, 32 train",
        "rollout: 12 instances of 8 GPUs, 1,294,194 KV tokens in each",
        "  on a GPU of 80 GiB: weights 16.9, KV 49.4 (40,960 bytes a token)",
        "  room for 30 responses of 43,008 tokens with their prompts, or 126 first chunks (10,240 tokens); "
        "rollout.engine.max_running 256",
        "trainer: 32 ranks, tensor 8 x pipeline 4 x data 1",
        "  on a GPU: 53.2 of 76.0 GiB at stage 3 "
        "(weights 4.4, gradients 8.8, optimizer 26.3, activations 1.6, temporaries 12.2)",
    ]
    (sparse,) = plan_jobs([experiment("seer_kimi_k2", tmp_path)])
    assert "trainer: 256 ranks, tensor 8 x pipeline 1 x data 32, experts 128 x tensor 2 x data 1" in describe(sparse)


def test_a_submission_is_refused_with_all_that_stands_in_its_way(tmp_path):
    plans = plan_jobs([experiment(name, tmp_path) for name in ("seer_moonlight", "areal_14b_code")])
    with pytest.raises(ConfigError) as error:
        submit_jobs(plans, console())
    lines = error.value.violations
    # A machine without namespaces has one more, of reward.isolation.
    assert [line.split(" ")[:3] for line in lines if "reward.isolation" not in line] == [
        ["run", "0:", "model.shape.architecture:"],
        ["run", "0:", "model.path:"],
        ["run", "0:", "data.path:"],
        ["run", "1:", "model.path:"],
        ["run", "1:", "data.path:"],
    ]
    assert not (tmp_path / "areal_14b_code").exists()


@pytest.mark.parametrize(("name", "code"), [("seer_qwen72b", 0), ("rhymerl_8b", 2)])
def test_the_command_ends_with_2_where_a_submission_would_be_refused_for_good(name, code, tmp_path):
    command = [sys.executable, "launch/submit.py", f"+exp={name}", "--dry-run", f"dir={tmp_path / 'run'}"]
    done = subprocess.run(command, cwd=CONF.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert "#SBATCH hetjob" in done.stdout
    assert ("is not carried by the trainer" in done.stderr) == (code == 2)


def test_models_lie_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SESTINA_MODELS", "/models")
    monkeypatch.setenv("SESTINA_DATA", "/data")
    config = experiment("seer_qwen72b", tmp_path)
    assert (str(config.model.path), str(config.data.path)) == ("/models/Qwen2.5-72B", "/data/train.jsonl")
