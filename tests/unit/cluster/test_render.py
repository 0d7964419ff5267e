import os
import subprocess
import sys

import pytest

from tests.unit.cluster.jobs import CASES, GOLDEN, text


@pytest.mark.parametrize("case", CASES)
def test_the_script_is_the_golden_one(case):
    written = (GOLDEN / f"{case}.sh").read_text()
    assert text(case) == written, "if meant, run: python -m tests.unit.cluster.jobs"


def test_every_golden_script_has_its_case():
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_the_script_is_sound_shell(case, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(text(case))
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck = os.path.join(os.path.dirname(sys.executable), "shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("case", CASES)
def test_the_script_decides_nothing(case):
    words = text(case).split()
    assert not {"if", "then", "while", "for", "case", "trap", "&&", "||", "&"} & set(words)
    assert words.count("srun") == 1
