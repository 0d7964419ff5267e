"""Packaging: one Python tree and the CPU kernels of the embedded engine; tools are set up in pyproject.toml."""

import os
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup

NATIVE = Path("src/sestina/rollout/native")

# The kernels gain 2 to 4 times from the host's vector units. Where the build host differs from the compute nodes, set
# SESTINA_MARCH to the nodes' architecture (for example x86-64-v3).
MARCH = os.environ.get("SESTINA_MARCH", "native")

kernels = Pybind11Extension(
    "sestina.rollout._native",
    sources=[str(NATIVE / name) for name in ("bindings.cc", "kernels.cc")],
    depends=[str(NATIVE / name) for name in ("kernels.h", "simd.h")],
    include_dirs=[str(NATIVE)],
    cxx_std=17,
    extra_compile_args=["-O3", "-funroll-loops", f"-march={MARCH}", "-Wall", "-Wextra"],
)

setup(
    name="sestina",
    version="0.1.0",
    description="Reinforcement learning of long-reasoning language models in which the rollout is fast",
    license="Apache-2.0",
    python_requires=">=3.11",
    package_dir={"": "src"},
    packages=find_packages("src"),
    ext_modules=[kernels],
    cmdclass={"build_ext": build_ext},
)
