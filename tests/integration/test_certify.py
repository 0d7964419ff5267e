"""launch/certify.py on a small model: what passes, and what its exit code says of a side that is spoilt."""

import json
import shutil
import subprocess
import sys

import pytest

from sestina.models.shape import read_shape
from sestina.models.weights import read_weights, write_tensors
from tests.integration.sglang_bench import PYTHON
from tests.integration.worlds import ROOT, arguments, small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


def certify(folder, model, *further, limit_s=300, **changes):
    small = {"reward.path": None, "rollout.max_new_tokens": 32, **changes}
    overrides = arguments(folder / "run", model, small, base=("+exp=quickstart",))
    command = [sys.executable, str(ROOT / "launch/certify.py"), *overrides, *further]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    found = folder / "out/certificates/quickstart.json"
    return done, json.loads(found.read_text()) if found.exists() else None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_is_certified_by_equality_or_by_its_distributions(dtype, model, tmp_path):
    done, found = certify(tmp_path, model, **{"rollout.engine.dtype": dtype, "trainer.max_logprob_diff": 0.05})
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["passed"]
    assert {check["arm"] for check in found["checks"]} == {
        "chunks and migration",
        "drafts (grouped)",
        "drafts (grouped), chunks and migration",
    }
    assert (tmp_path / "out/certificates/quickstart.md").read_text().startswith("# Certificate: PASSED\n")


@pytest.mark.parametrize(
    ("drafts", "compared"),
    [
        ({"draft.source": "history"}, "tokens"),
        (
            {
                "draft.source": "quantized",
                "draft.min_token_prob": 0.0,
                "draft.weight_group": 32,
                "draft.acceptance": "rejection",
            },
            "distribution",
        ),
    ],
)
def test_drafts_are_held_to_what_they_promise(drafts, compared, model, tmp_path):
    """Histories know the plain answers; rejection changes tokens, and must not change how they are distributed."""
    done, found = certify(tmp_path, model, **drafts)
    assert done.returncode == 0, done.stdout + done.stderr
    of_drafts = [check for check in found["checks"] if check["arm"].startswith(f"drafts ({drafts['draft.source']})")]
    assert len(of_drafts) > 2
    assert any(compared in check["name"] for check in of_drafts)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_corrupted_weights_on_one_side_fail(dtype, model, tmp_path):
    spoilt = tmp_path / "spoilt"
    shutil.copytree(model, spoilt)
    tensors = read_weights(spoilt, read_shape(spoilt))
    tensors["model.layers.0.mlp.down_proj.weight"] *= 3.0
    write_tensors(spoilt, tensors.items())
    done, found = certify(tmp_path, model, f"--tested-model={spoilt}", **{"rollout.engine.dtype": dtype})
    assert done.returncode == 1, done.stdout + done.stderr
    assert not found["passed"]
    assert "# Certificate: FAILED" in done.stdout


@pytest.mark.sglang
@pytest.mark.timeout(600)
def test_servers_are_certified_by_the_tokens_of_one_noise(model, tmp_path):
    """Four servers, two at a time."""
    servers = {"rollout.engine": "sglang", "rollout.engine.python": PYTHON, "rollout.engine.max_step_tokens": None}
    done, found = certify(tmp_path, model, limit_s=540, **servers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (found["passed"], found["held_by"]) == (True, "noise")
    by_arm = {(check["arm"], check["name"]): check["found"] for check in found["checks"]}
    arms = ["chunks and migration", "drafts (grouped)", "drafts (grouped), chunks and migration"]
    assert [arm for arm, name in by_arm if name == "tokens"] == arms
    assert [arm for arm, name in by_arm if name == "drafts in use"] == arms[1:]


def test_a_model_of_another_shape_is_refused(model, tmp_path):
    done, found = certify(tmp_path, model, f"--tested-model={ROOT / 'assets/sums'}")
    assert done.returncode == 2
    assert "of another shape than" in done.stderr
    assert found is None
