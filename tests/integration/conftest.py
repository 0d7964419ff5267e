"""A SLURM of virtual nodes for all tests of a session, and what runs on it are compared with."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sestina.bench.asked import at_most
from sestina.telemetry.measurements import write_measurements
from tests.integration.slurm_jobs import BASE, STEPS
from tests.integration.worlds import ROOT, small_model, train


@pytest.fixture(scope="session")
def measured():
    """Takes (name, seconds, at most) and writes what the tests have measured to out/measurements."""
    figures = []
    yield lambda name, seconds, bound: figures.append(at_most(name, seconds, "s", bound))
    if figures:
        write_measurements("slurm", figures, ROOT / "out/measurements")


@pytest.fixture(scope="session")
def cluster():
    """Six nodes with four GPUs that are none; up in a second once the packages are there."""
    folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))  # sockets below it: a short path
    here = [str(ROOT / "slurm/local.sh")]
    options = ["-d", str(folder), "-n", "6", "-g", "4", "-i", "42"]
    if os.getuid() != 0:
        pytest.skip("slurm/local.sh wants root")
    up = subprocess.run([*here, "up", *options], capture_output=True, text=True, timeout=300, check=False)
    if "apt-get failed" in up.stderr:
        pytest.skip(f"SLURM cannot be installed here: {up.stderr}")
    assert up.returncode == 0, up.stderr
    before = dict(os.environ)
    os.environ |= {"SLURM_CONF": str(folder / "etc/slurm.conf"), "SESTINA_PYTHON": sys.executable}
    yield folder
    subprocess.run([*here, "down", *options[:2], "--purge"], timeout=120, check=True, capture_output=True)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def slurm_model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def straight(tmp_path_factory, slurm_model):
    """The same configuration on this machine, by mpiexec."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    done = train(folder, slurm_model, BASE, run__steps=STEPS, run__checkpoint_every=1)
    assert done.code == 0, done.output
    return done
