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


def main() -> int:
    """Measure one target, or report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "target",
        choices=[
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
            "report",
        ],
    )
    parser.add_argument("--out", type=Path, default=Path("out/measurements"), help="folder of measurements")
    parser.add_argument("--page", type=Path, default=Path("docs/measurements.md"), help="what report writes")
    asked = parser.parse_args()
    if asked.target == "report":
        print(write_page(asked.out, asked.page))
        return 0
    figures = importlib.import_module(f"sestina.bench.{asked.target}").measure(partial(print, flush=True))
    Console().print(table(asked.target, figures))
    print(write_measurements(asked.target, figures, asked.out))
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
