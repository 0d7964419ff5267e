"""The native core under the address and undefined-behaviour sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

import sestina.drafting

NATIVE = Path(sestina.drafting.__file__).parent / "native"
HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(("driver", "rounds"), [("fuzz.cc", 400), ("fuzz_texts.cc", 20_000)])
def test_random_use_leaves_the_sanitizers_nothing_to_say(tmp_path, driver, rounds):
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "a C++ compiler built the package"
    program = tmp_path / "fuzz"
    sources = [str(source) for source in NATIVE.glob("*.cc") if source.name != "bindings.cc"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GLIBCXX_ASSERTIONS"]
    options = ["-std=c++17", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", *checks, f"-I{NATIVE}"]
    subprocess.run([compiler, *options, str(HERE / driver), *sources, "-o", str(program)], check=True, timeout=300)
    done = subprocess.run([program, "1", str(rounds)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
