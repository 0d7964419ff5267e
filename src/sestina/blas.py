"""Sums of matrix products that do not depend on how many rows there are, on Intel's CPUs too (decision 3).

PyTorch's products on x86 are MKL's, which on Intel's CPUs adds in another order for few rows than for many; where "few"
ends depends on the shape. Its strict reproducible mode does not (oneMKL Developer Guide, "Reproducibility Conditions"):
with 16 rows and more it takes about as long, with fewer up to two and a half times. It is for Intel's CPUs alone. On
AMD's, products of four rows or more have the same bits without it.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

MODE = "MKL_CBWR"
_CPU = Path("/proc/cpuinfo")
_BRANCHES = (
    ("AVX512,STRICT", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("AVX2,STRICT", {"avx2"}),
)


def choose_sums(environment: MutableMapping[str, str] = os.environ, cpu: Path = _CPU) -> None:
    """Put MKL's mode into the environment, if this CPU has one and none is set; where there is no `cpu`, do nothing.

    MKL reads it at a process's first product, so this has to come before.
    """
    if MODE not in environment and cpu.exists():
        mode = strict_mode(cpu.read_text(encoding="utf-8"))
        if mode is not None:
            environment[MODE] = mode


def strict_mode(cpuinfo: str) -> str | None:
    """Return the mode for the CPU that `/proc/cpuinfo` describes; None where MKL has none for it."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    values = {key.strip(): value.strip() for key, _, value in lines}
    if values.get("vendor_id") != "GenuineIntel":
        return None
    flags = set(values.get("flags", "").split())
    return next((mode for mode, needed in _BRANCHES if needed <= flags), None)
