from pathlib import Path

from sestina.rewards.config import ExactConfig, FunctionConfig, MathConfig
from sestina.rewards.functions import Signature
from sestina.rewards.messages import Sample

MODULE = "tests.unit.rewards.functions"
EXACT = ExactConfig(kind="exact", answer_mark="####", num_workers=1, timeout_s=5)
MATH = MathConfig(kind="math", num_workers=1, timeout_s=5)


def function(name, signature: Signature = "native", *, num_workers=1, timeout_s=5.0):
    path = name if ":" in name else f"{MODULE}:{name}"
    return FunctionConfig(kind="function", path=path, signature=signature, num_workers=num_workers, timeout_s=timeout_s)


def sample(response="r", label: object = "l", meta=None, prompt="p"):
    return Sample(prompt=prompt, response=response, label=label, meta=meta or {})


def running(pid):
    """Whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
