"""Takes figures, or renders all that were taken as a page. Exit code 1 when a figure is not what it must be."""

import argparse
import importlib
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from sestina.bench.page import write_page
from sestina.bench.table import table
from sestina.core.errors import SestinaError
from sestina.telemetry.measurements import write_measurements

MODULES = {"async": "asynchronous"}
"""Of targets whose name no module can have."""
SEEDED = ("async", "staleness")


def _seeds(text: str) -> dict[str, tuple[int, ...]]:
    return {"seeds": tuple(map(int, text.split(",")))}


def main() -> int:
    """Measure one target, or report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "target",
        choices=[
            "async",
            "drafting",
            "draft_service",
            "engine",
            "packing",
            "quantized",
            "rollout",
            "quickstart",
            "sglang",
            "simulator",
            "speculation",
            "staleness",
            "validate",
            "report",
        ],
    )
    parser.add_argument("--out", type=Path, default=Path("out/measurements"), help="folder of measurements")
    parser.add_argument("--page", type=Path, default=Path("docs/measurements.md"), help="what report writes")
    parser.add_argument("--seeds", type=_seeds, default={}, metavar="1,2,3", help="of async and staleness")
    asked = parser.parse_args()
    if asked.target == "report":
        print(write_page(asked.out, asked.page))
        return 0
    if asked.seeds and asked.target not in SEEDED:
        parser.error(f"--seeds: {asked.target} takes none; {' and '.join(SEEDED)} do")
    module = importlib.import_module(f"sestina.bench.{MODULES.get(asked.target, asked.target)}")
    figures = module.measure(partial(print, flush=True), **asked.seeds)
    Console().print(table(asked.target, figures))
    print(write_measurements(asked.target, figures, asked.out))
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
