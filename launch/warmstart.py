"""Makes assets/sums again: the model that quickstart starts from. Takes some minutes on one core."""

import argparse
import dataclasses
import json
import warnings
from pathlib import Path

import torch.distributed as dist

warnings.filterwarnings("ignore", module="megatron")

from sestina.trainer.recipe import Recipe  # noqa: E402 - Megatron's warnings are silenced first
from sestina.trainer.warmstart import make  # noqa: E402


def main() -> None:
    """Write the model, its tokenizer and the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("assets/sums"), help="directory to write")
    out: Path = parser.parse_args().out
    recipe = Recipe()
    for stage, step, terms, metrics in make(recipe, out, dist.HashStore()):
        if step % 50 == 0:
            print(f"{stage} {step:4d}  up to {terms} terms  nll {metrics['nll']:.4f}", flush=True)
    made = dataclasses.asdict(recipe) | {"fingerprint": recipe.fingerprint(), "command": "python launch/warmstart.py"}
    (out / "recipe.json").write_text(json.dumps(made, indent=2) + "\n")


if __name__ == "__main__":
    main()
