"""Shows what runs have left: python launch/report.py RUN_DIR [RUN_DIR ...] [--out FILE] [--timeline].

Writes one HTML file, images and tables inside, to RUN_DIR/report.html, or FILE; --timeline also writes
RUN_DIR/timeline.json of each run, which https://ui.perfetto.dev opens.
"""

import argparse
import sys
from pathlib import Path

from sestina.analysis.page import write_page
from sestina.analysis.perfetto import write_timeline
from sestina.analysis.run import read_runs
from sestina.analysis.split import split_text
from sestina.core.errors import SestinaError


def main() -> None:
    """Write the page, and timelines if they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="directory of a run that has ended")
    parser.add_argument("--out", type=Path, help="the page; by default report.html in the first directory")
    parser.add_argument("--timeline", action="store_true", help="also write timeline.json of each run")
    asked = parser.parse_args()
    runs = read_runs(asked.runs)
    out: Path = asked.out or runs[0].path / "report.html"
    write_page(runs, out)
    print(out)
    for run in runs if asked.timeline else ():
        path = run.path / "timeline.json"
        print(f"{path}: {write_timeline(run, path)} events")
    print(*map(split_text, runs), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
