"""Rules between keys of rollout: modes, schedulers, caches, the KV pool."""

from sestina.config.rule import Rule, at_most
from sestina.rollout.pages import PAGE_TOKENS, pages_for


def _request_fits_cache(capacity_tokens: int, prompt_tokens: int, new_tokens: int) -> str | None:
    if not capacity_tokens:
        return None  # SGLang takes what the GPU has, and its rank refuses what that does not hold
    needed = pages_for(prompt_tokens + new_tokens) * PAGE_TOKENS
    if capacity_tokens >= needed:
        return None
    return f"at least {needed}: the longest prompt and response in whole pages of {PAGE_TOKENS}"


def _oracle_has_lengths(lengths_from: object, scheduler: str, forced_from: object) -> str | None:
    missing = scheduler == "oracle" and lengths_from is None and forced_from is None
    return "the directory of a run with the same prompts and seed, under another scheduler" if missing else None


def _mean_is_below_the_longest(mean: int | None, longest: int) -> str | None:
    return f"below {longest}, or null" if mean is not None and mean >= longest else None


def _chunk_fills_a_page(chunk_tokens: int, kv_pool: str, scheduler: str) -> str | None:
    short = kv_pool != "none" and scheduler != "group" and chunk_tokens < PAGE_TOKENS
    return f"at least {PAGE_TOKENS}, a page of keys and values, which is what the pool moves" if short else None


def _ssd_has_a_folder(ssd_dir: object, ssd_bytes: int) -> str | None:
    return "a folder on a disk of the node's own, or ssd_bytes 0" if ssd_bytes and ssd_dir is None else None


def _master_has_a_port(master: str | None, kind: str) -> str | None:
    host, _, port = (master or "host:1").rpartition(":")
    there = host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
    return None if there or kind != "mooncake" else "host:port of a mooncake_master, or null for one of the run's own"


def _device_of_rdma(device: str, protocol: str) -> str | None:
    return "'': only rdma has devices" if device and protocol == "tcp" else None


def _histopipe_streams(scheduler: str, mode: str) -> str | None:
    alone = scheduler == "histopipe" and mode != "pipelined"
    return "another scheduler, or run.mode 'pipelined': it balances over two steps" if alone else None


def _history_is_ranked_by(history_from: object, scheduler: str) -> str | None:
    idle = history_from is not None and scheduler != "histopipe"
    return "null, or rollout.scheduler 'histopipe', which alone ranks by it" if idle else None


def _batch_runs_at_once(running: int | None, mode: str, batch_size: int, group_size: int) -> str | None:
    groups = batch_size // group_size
    short = mode == "async" and running is not None and running < groups
    return f"at least {groups}, the groups of a batch, or null" if short else None


def _kept_only_if_interrupted(keep_kv: bool, mode: str) -> str | None:
    return "false: weights change between responses there" if keep_kv and mode != "async" else None


def _over_issue_takes_turns(over_issue: float, mode: str) -> str | None:
    idle = over_issue > 1 and mode != "sync"
    return "1, or run.mode 'sync': in others what has not ended when a batch has goes on anyway" if idle else None


def _carried_in_time(over_issue: float, stopped: str, max_staleness: int) -> str | None:
    late = stopped == "carry" and over_issue > 1 + max_staleness
    return (
        f"at most {1 + max_staleness}, or rollout.stopped 'drop': more could not be trained on in time"
        if late
        else None
    )


_LONGEST = ("data.max_prompt_tokens", "rollout.max_new_tokens")
_BATCH = ("algorithm.batch_size", "algorithm.group_size")

ROLLOUT_RULES = (
    Rule(needs=("async.max_running_groups", "run.mode", *_BATCH), check=_batch_runs_at_once),
    Rule(needs=("async.keep_kv", "run.mode"), check=_kept_only_if_interrupted),
    Rule(needs=("rollout.over_issue", "run.mode"), check=_over_issue_takes_turns),
    Rule(needs=("rollout.over_issue", "rollout.stopped", "async.max_staleness"), check=_carried_in_time),
    Rule(needs=("rollout.scheduler", "run.mode"), check=_histopipe_streams),
    Rule(needs=("rollout.history_from", "rollout.scheduler"), check=_history_is_ranked_by),
    Rule(needs=("rollout.lengths_from", "rollout.scheduler", "rollout.forced_lengths_from"), check=_oracle_has_lengths),
    Rule(needs=("rollout.engine.kv_capacity_tokens", *_LONGEST), check=_request_fits_cache),
    Rule(needs=("rollout.engine.max_running", "rollout.engine.max_step_tokens"), check=at_most),
    Rule(needs=("rollout.chunk_tokens", "rollout.kv_pool.kind", "rollout.scheduler"), check=_chunk_fills_a_page),
    Rule(needs=("rollout.kv_pool.ssd_dir", "rollout.kv_pool.ssd_bytes"), check=_ssd_has_a_folder),
    Rule(needs=("rollout.kv_pool.master", "rollout.kv_pool.kind"), check=_master_has_a_port),
    Rule(needs=("rollout.kv_pool.device", "rollout.kv_pool.protocol"), check=_device_of_rdma),
    Rule(needs=("rollout.expected_tokens", "rollout.max_new_tokens"), check=_mean_is_below_the_longest),
)
