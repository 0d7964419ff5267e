"""Rules between the keys of an engine that is a server."""

from sestina.config.rule import Rule
from sestina.kvpool.config import LEAST_SEGMENT_BYTES
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


def _segment_for_each_gpu(segment_bytes: int, tensor_parallel: int) -> str | None:
    """Each of a server's processes gives its part, and Mooncake takes no less than `LEAST_SEGMENT_BYTES`."""
    least = LEAST_SEGMENT_BYTES * tensor_parallel
    return f"at least {least}: {LEAST_SEGMENT_BYTES} of each of a server's GPUs" if segment_bytes < least else None


def _chunk_fills_a_page(chunk_tokens: int, page_tokens: int, kv_pool: str, scheduler: str) -> str | None:
    short = kv_pool != "none" and scheduler != "group" and chunk_tokens < page_tokens
    return (
        f"at least {page_tokens}: the pool keeps whole pages, and each chunk would compute its own again"
        if short
        else None
    )


_ENGINE = "rollout.engine"

SERVER_RULES = (
    Rule(needs=(f"{_ENGINE}.kv_capacity_tokens", f"{_ENGINE}.device"), check=_cpu_takes_what_it_is_told),
    Rule(needs=(f"{_ENGINE}.deterministic", f"{_ENGINE}.device"), check=_deterministic_on_cuda),
    Rule(needs=(f"{_ENGINE}.tensor_parallel", f"{_ENGINE}.device"), check=_one_cpu),
    Rule(
        needs=("rollout.chunk_tokens", f"{_ENGINE}.page_tokens", "rollout.kv_pool.kind", "rollout.scheduler"),
        check=_chunk_fills_a_page,
    ),
    Rule(needs=("rollout.kv_pool.segment_bytes", f"{_ENGINE}.tensor_parallel"), check=_segment_for_each_gpu),
    Rule(needs=(f"{_ENGINE}.extra_args", f"{_ENGINE}.kind"), check=_said_once),
)
