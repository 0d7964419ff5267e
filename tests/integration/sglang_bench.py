"""SGLang engines for tests, on the CPU, and what they are compared with."""

import os
from pathlib import Path

import pytest

from sestina.models.weights import write_model
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.sglang.engine import SGLangEngine
from tests.conftest import lively_weights, make_shape
from tests.integration.worlds import ROOT

PYTHON = Path(os.environ.get("SESTINA_SGLANG_PYTHON", ROOT / ".venv-sglang/bin/python"))
SHAPE = make_shape(vocab_size=80)
STOP, SEED, CONTEXT_TOKENS = 1, 5, 256
CONFIG = SGLangEngineConfig(
    kind="sglang",
    python=PYTHON,
    device="cpu",
    dtype="float32",
    tensor_parallel=1,
    data_parallel=1,
    expert_parallel=1,
    memory_fraction=0.8,
    kv_capacity_tokens=16384,
    max_running=64,
    page_tokens=16,
    deterministic=False,
    weights="broadcast",
    bucket_bytes=100_000,
    start_s=180,
    silence_s=15,
    max_restarts=1,
)


def weights(seed=0):
    return lively_weights(SHAPE, seed=seed)


def write(folder):
    write_model(folder, SHAPE, weights().items())
    return folder


def start(folder, config=CONFIG, draft=None, desk=None, pool=None, log="sglang.log"):
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing; run `make sglang`")
    return SGLangEngine(
        config,
        SHAPE,
        model=folder / "model",
        log=folder / log,
        max_context_tokens=CONTEXT_TOKENS,
        seed=SEED,
        stop_token=STOP,
        draft=draft,
        desk=desk,
        pool=pool,
    )
