"""Rules between the keys of an engine that is a server."""

from sestina.config.rule import Rule
from sestina.rollout.sglang.server import OWN_ARGUMENTS


def _cpu_takes_what_it_is_told(capacity_tokens: int, device: str) -> str | None:
    return "at least 1, as a CPU has no memory of its own" if device == "cpu" and not capacity_tokens else None


def _deterministic_on_cuda(deterministic: bool, device: str) -> str | None:
    return "false: SGLang has those kernels for CUDA alone" if deterministic and device == "cpu" else None


def _one_cpu(tensor_parallel: int, device: str) -> str | None:
    return "1: the parallelism is over GPUs" if device == "cpu" and tensor_parallel > 1 else None


def _said_once(extra_args: tuple[str, ...], _kind: str) -> str | None:
    """SGLang takes `--name value` and `--name=value`, and any beginning of a name that only one has."""
    given = [word[2:].split("=")[0] for word in extra_args if word.startswith("--")]
    twice = [f"--{name}" for name in given if any(own.startswith(name) for own in OWN_ARGUMENTS)]
    return f"without {', '.join(twice)}, which other keys or the rank itself decide on" if twice else None


_ENGINE = "rollout.engine"

SERVER_RULES = (
    Rule(needs=(f"{_ENGINE}.kv_capacity_tokens", f"{_ENGINE}.device"), check=_cpu_takes_what_it_is_told),
    Rule(needs=(f"{_ENGINE}.deterministic", f"{_ENGINE}.device"), check=_deterministic_on_cuda),
    Rule(needs=(f"{_ENGINE}.tensor_parallel", f"{_ENGINE}.device"), check=_one_cpu),
    Rule(needs=(f"{_ENGINE}.extra_args", f"{_ENGINE}.kind"), check=_said_once),
)
