"""What the start of a run waits for (docs/decisions/0013)."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "later"),
    [
        ("sestina.cluster.job", {"numpy", "msgspec", "yaml", "pydantic", "omegaconf", "asyncio"}),
        ("sestina.controller.supervisor", {"yaml", "pydantic", "omegaconf", "asyncio", "rich", "tokenizers", "torch"}),
        ("sestina.trainer.worker", {"torch", "megatron"}),
        ("sestina.controller.main", {"torch", "megatron"}),
        ("sestina.rollout.worker", {"megatron", "aiohttp", "transformers"}),
    ],
)
def test_a_process_imports_no_more_than_it_needs_then(module, later):
    script = f"import sys, {module}; print(*({later} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
