"""What an append costs as a store grows: time, and instructions where valgrind is installed."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

import sestina.drafting
from sestina.bench.asked import at_most, stated
from sestina.bench.drafting.sides import CHUNK, Rounds
from sestina.bench.drafting.workload import Workload
from sestina.bench.turns import Say
from sestina.core.errors import RunError
from sestina.telemetry.measurements import Figure

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
MOST_INSTRUCTIONS, MOST_TIME = 1.15, 5.0
RUN_LIMIT_S = 900.0
DRIVER = Path(__file__).parent / "growth.cc"
NATIVE = Path(sestina.drafting.__file__).parent / "native"


def growth(workload: Workload, say: Say, sizes: Sequence[int] = SIZES) -> list[Figure]:
    """Append to one group until it has each of `sizes` tokens."""
    with tempfile.TemporaryDirectory() as folder:
        driver, chunks = _built(Path(folder)), Path(folder) / "chunks"
        _write_chunks(workload, sizes[-1], chunks)
        times = {size: float(_run([str(driver), str(chunks), str(size)])) for size in sizes}
        name = "growth of one group"
        figures = [stated(f"{name}: {size:,} tokens", times[size], "ns per token") for size in sizes]
        ratio = times[sizes[-1]] / times[sizes[0]]
        figures.append(at_most(f"{name}: time per token, last over first", ratio, "x", MOST_TIME))
        if shutil.which("valgrind") is None:
            say(f"{name}: valgrind is not installed, so instructions are not counted")
            return figures
        first, last = (_instructions(driver, chunks, size) / size for size in (sizes[0], sizes[-1]))
    return [
        *figures,
        stated(f"{name}: {sizes[0]:,} tokens, instructions", first, "per token"),
        stated(f"{name}: {sizes[-1]:,} tokens, instructions", last, "per token"),
        at_most(f"{name}: instructions per token, last over first", last / first, "x", MOST_INSTRUCTIONS),
    ]


def _built(folder: Path) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise RunError("growth of one group: no C++ compiler (c++, g++) to build its driver")
    sources = [str(NATIVE / f"{name}.cc") for name in ("automaton", "blocks", "check", "group", "log")]
    options = ["-std=c++17", "-O3", f"-I{NATIVE}"]  # for any machine of its kind: valgrind knows no AVX-512
    _run([compiler, *options, str(DRIVER), *sources, "-o", str(folder / "growth")])
    return folder / "growth"


def _write_chunks(workload: Workload, num_tokens: int, path: Path) -> None:
    with path.open("wb") as file:
        written = started = 0
        for number in count():
            texts = workload.group(number).responses
            for rows, _, bounds, tokens in Rounds(texts, CHUNK).rounds:
                for row, start, end in zip(rows, bounds, bounds[1:], strict=False):
                    file.write(np.array([started + row, end - start], np.int32).tobytes())
                    file.write(tokens[start:end].tobytes())
                written += len(tokens)
            started += len(texts)
            if written >= num_tokens:
                return


def _instructions(driver: Path, chunks: Path, size: int) -> int:
    tool = ["valgrind", "--tool=callgrind", "--toggle-collect=build", f"--callgrind-out-file={driver}.callgrind"]
    _run([*tool, str(driver), str(chunks), str(size)])
    found = re.search(
        r"^(?:summary|totals): (\d+)", Path(f"{driver}.callgrind").read_text(encoding="ascii"), re.MULTILINE
    )
    if found is None:
        raise RunError("growth of one group: callgrind wrote no total")
    return int(found[1])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    if done.returncode != 0:
        raise RunError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
