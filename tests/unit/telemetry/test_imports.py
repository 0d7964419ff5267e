import pkgutil
import subprocess
import sys

import sestina.telemetry


def test_heavy_libraries_wait_until_they_are_needed():
    names = [f"sestina.telemetry.{module.name}" for module in pkgutil.iter_modules(sestina.telemetry.__path__)]
    assert len(names) > 10
    heavy = {"wandb", "matplotlib", "torch", "mpi4py", "pandas"}
    script = f"import sys, {', '.join(names)}; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
