import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
from annotated_types import MultipleOf

from sestina.config.run import RunConfig
from sestina.config.schema import allowed, keys_of, nearest

GOLDEN = Path(__file__).parents[2] / "golden/config_keys.txt"

REGENERATE = (
    'python -c "from sestina.config.run import RunConfig; from sestina.config.schema import keys_of; '
    "print(*keys_of(RunConfig), sep='\\n')\" > tests/golden/config_keys.txt"
)


def test_the_schema_changes_only_on_purpose():
    listed = [str(key) for key in keys_of(RunConfig)]
    assert listed == GOLDEN.read_text().splitlines(), f"the configuration's schema changed; if meant, run: {REGENERATE}"


def test_every_key_of_every_kind_is_listed():
    keys = [(key.path, key.kind) for key in keys_of(RunConfig)]
    assert len(keys) == len(set(keys))
    assert {("data.path", "files"), ("reward.path", "function"), ("trainer.optimizer.eps", None)} <= set(keys)


def test_a_bound_without_words_is_our_mistake():
    with pytest.raises(TypeError, match="no words for MultipleOf"):
        allowed(Annotated[int, MultipleOf(2)])


def test_nearest_looks_at_the_last_part_and_the_whole():
    keys = ["rollout.chunk_tokens", "algorithm.group_size", "eval.every"]
    assert nearest("rollout.chunk_token", keys) == "rollout.chunk_tokens"
    assert nearest("group_size", keys) == "algorithm.group_size"
    assert nearest("zebra", keys) is None
    assert nearest("zebra", []) is None


IMPORTS = """
import pkgutil, sys
from importlib import import_module
import sestina.config
for module in pkgutil.iter_modules(sestina.config.__path__):
    if module.name not in {excluded!r}:
        import_module("sestina.config." + module.name)
print(*sorted({names!r} & sys.modules.keys()))
"""


def imported(names: set[str], excluded: tuple[str, ...]) -> list[str]:
    script = IMPORTS.format(names=names, excluded=excluded)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_loading_needs_none_of_the_heavy_packages():
    assert imported({"torch", "megatron", "mpi4py", "wandb", "sestina.config.load"}, ()) == ["sestina.config.load"]


def test_only_the_loader_imports_pydantic():
    assert imported(
        {"pydantic", "sestina.config.rules"}, ("load", "resolved", "fingerprint", "sweep", "change", "split")
    ) == ["sestina.config.rules"]
