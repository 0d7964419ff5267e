"""Figures that say how well the product does, each with the machine, commit and command it was taken with."""

import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sestina.core.errors import DataError
from sestina.telemetry.aside import written_aside

GIT_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value and what is asked of it."""

    name: str
    value: float
    unit: str
    must: str | None
    """Such as ">= 2"; None when nothing is asked."""
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the figures were taken on."""

    cpu: str
    logical_cores: int
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """One file: the figures one command took."""

    target: str
    machine: Machine
    commit: str | None
    """Of the repository around the working directory; "+dirty" when its tree differs, None when there is none."""
    date: str
    """UTC, to the second."""
    command: str
    figures: tuple[Figure, ...]


def write_measurements(target: str, figures: Sequence[Figure], out: Path = Path("out/measurements")) -> Path:
    """Write out/<target>.json in place of an older one; returns its path, raises ValueError on a value not finite."""
    lost = [figure.name for figure in figures if not math.isfinite(figure.value)]
    if lost:
        raise ValueError(f"{target}: the value of '{lost[0]}' is not a finite number")
    measurements = Measurements(
        target=target,
        machine=this_machine(),
        commit=commit_of(Path.cwd()),
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=shlex.join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]]),
        figures=tuple(figures),
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{target}.json"
    with written_aside(path) as aside:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(measurements), indent=2) + b"\n")
    return path


def render_markdown(folder: Path, pictures: str = ".", before: str = "") -> str:
    """Return a page of all measurements in a folder, by target, with the pictures that lie beside them.

    `pictures`: where the page finds those; `before`: a page of older measurements, whose sections stay for targets that
    the folder has nothing of. Raises DataError on a file that is something else.
    """
    found = {path.stem: _section(_read(path)) + _picture(path, pictures) for path in folder.glob("*.json")}
    sections = dict(_sections(before)) | found
    return "\n".join(["# Measurements\n", *([sections[name] for name in sorted(sections)] or ["None were taken.\n"])])


def _sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield target and text of each section of a page."""
    for section in page.split("\n## ")[1:]:
        yield section.partition("\n")[0], f"## {section.rstrip()}\n"


def this_machine() -> Machine:
    """Describe the machine this process runs on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(cpu=_cpu_model(), logical_cores=os.cpu_count() or 1, memory_gib=round(memory_bytes / 2**30, 1))


def commit_of(folder: Path) -> str | None:
    """Return the commit checked out around a folder, "+dirty" appended when its tree differs; None without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return f"{commit}+dirty" if _git(folder, "status", "--porcelain") else commit


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_LIMIT_S, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return os.uname().machine


def _read(path: Path) -> Measurements:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Measurements)
    except msgspec.MsgspecError as error:
        raise DataError(f"{path}: not a file of measurements: {error}") from None


def _section(measurements: Measurements) -> str:
    m = measurements
    machine = f"{m.machine.cpu}, {m.machine.logical_cores} logical cores, {m.machine.memory_gib:g} GiB"
    rows = [f"| {f.name} | {_number(f.value)} {f.unit} | {f.must or ''} | {_VERDICTS[f.met]} |" for f in m.figures]
    lines = [
        f"## {m.target}\n",
        f"`{m.command}` on {m.date}, commit {m.commit or 'unknown'}; {machine}.\n",
        "| figure | value | must be | met |",
        "|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def _picture(path: Path, pictures: str) -> str:
    shown = path.with_suffix(".png").exists()
    return f"\n![{path.stem}]({pictures}/{path.stem}.png)\n" if shown else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - four digits are enough


_VERDICTS = {True: "yes", False: "no", None: ""}
