"""Holds drafts, chunks and migration against plain decoding: python launch/certify.py +exp=NAME [key=value ...].

Writes out/certificates/NAME.md and .json; exit code 1 when anything differs that must not. `--tested-model=DIR` gives
the side with drafts, chunks and migration other weights, such as a converted checkpoint.
"""

import sys
from functools import partial
from pathlib import Path

from sestina.config.sweep import names_of, runs_of
from sestina.controller.certify import certify
from sestina.core.errors import SestinaError

CONF = Path(__file__).resolve().parent.parent / "conf"
TESTED = "--tested-model="


def main(argv: list[str]) -> int:
    """Certify every run of a command line."""
    given = [argument for argument in argv if not argument.startswith(TESTED)]
    tested = [Path(argument.removeprefix(TESTED)) for argument in argv if argument.startswith(TESTED)]
    runs, model = runs_of(given, CONF), tested[-1] if tested else None
    named = zip(runs, names_of(runs), strict=True)
    passed = [certify(run, name, model, partial(print, flush=True)) for run, name in named]
    return int(not all(passed))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
