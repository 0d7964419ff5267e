"""Rules between keys: what each needs to know, and what it then allows.

A rule is judged when every key it needs is there and valid, so a key of another `kind` of section switches it off.
"""

from collections.abc import Mapping
from typing import Any

from sestina.config.cluster_rules import CLUSTER_RULES
from sestina.config.model_rules import MODEL_RULES
from sestina.config.rule import Rule
from sestina.config.schema import shown
from sestina.config.server_rules import SERVER_RULES
from sestina.data.sums import ANSWER_MARK
from sestina.rewards.key_rules import KEY_RULES
from sestina.rollout.pages import PAGE_TOKENS, pages_for


def broken_rules(valid: Mapping[str, Any]) -> list[str]:
    """Return one line for each rule that the valid values, by dotted path, break."""
    lines: list[str] = []
    for rule in RULES:
        if all(path in valid for path in rule.needs):
            values = [valid[path] for path in rule.needs]
            allowed = rule.check(*values)
            if allowed is not None:
                lines.append(_line(rule, values, allowed))
    return lines


def _line(rule: Rule, values: list[Any], allowed: str) -> str:
    blamed, *others = zip(rule.needs, map(shown, values), strict=True)
    beside = ", ".join(f"{path} {value}" for path, value in others)
    return f"{blamed[0]}: {blamed[1]} is not allowed with {beside}; {allowed}"


def _whole_groups(batch_size: int, group_size: int) -> str | None:
    return f"a multiple of {group_size}" if batch_size % group_size else None


def _equal_minibatches(minibatches: int, batch_size: int, group_size: int) -> str | None:
    if batch_size % group_size:
        return None  # _whole_groups says so
    groups = batch_size // group_size
    return f"a divisor of {groups}, the number of groups in a batch" if groups % minibatches else None


def _groups_compare(group_size: int, algorithm: str) -> str | None:
    alone = algorithm != "ppo" and group_size == 1
    return "at least 2: a response is compared with others to the same prompt" if alone else None


def _epoch_fills_a_batch(num_prompts: int, batch_size: int, group_size: int) -> str | None:
    groups = batch_size // group_size
    return f"at least {groups}, the number of groups in a batch" if num_prompts < groups else None


def _request_fits_cache(capacity_tokens: int, prompt_tokens: int, new_tokens: int) -> str | None:
    if not capacity_tokens:
        return None  # SGLang takes what the GPU has, and its rank refuses what that does not hold
    needed = pages_for(prompt_tokens + new_tokens) * PAGE_TOKENS
    if capacity_tokens >= needed:
        return None
    return f"at least {needed}: the longest prompt and response in whole pages of {PAGE_TOKENS}"


def _sample_fits_micro_batch(budget_tokens: int, prompt_tokens: int, new_tokens: int) -> str | None:
    needed = prompt_tokens + new_tokens
    return f"at least {needed}: the longest prompt and response" if budget_tokens < needed else None


def _at_most(value: float, limit: float) -> str | None:
    return f"at most {limit}" if value > limit else None


def _whole_replicas(num_ranks: int, tensor_parallel: int, pipeline_parallel: int) -> str | None:
    ranks = tensor_parallel * pipeline_parallel
    return f"a multiple of {ranks}, the ranks that hold one model" if num_ranks % ranks else None


def _sequence_is_shared(sequence_parallel: bool, tensor_parallel: int) -> str | None:
    return "false, or tensor_parallel of at least 2" if sequence_parallel and tensor_parallel == 1 else None


def _decay_after_warmup(decay_steps: int, warmup_steps: int, decay: str) -> str | None:
    ends = decay == "constant" or decay_steps > warmup_steps
    return None if ends else f"above {warmup_steps}, as warm-up is included, or decay 'constant'"


def _held_out_file(eval_path: object, every: int) -> str | None:
    return "a file of held-out prompts, or eval.every 0" if every and eval_path is None else None


def _held_out_enough(num_prompts: int, num_held_out: int, every: int) -> str | None:
    return f"at most {num_held_out}" if every and num_prompts > num_held_out else None


def _longest_sum_fits(prompt_tokens: int, max_terms: int) -> str | None:
    needed = 2 * max_terms + 4
    return f"at least {needed}: a sum of n terms takes 2n+4" if prompt_tokens < needed else None


def _oracle_has_lengths(lengths_from: object, scheduler: str, forced_from: object) -> str | None:
    missing = scheduler == "oracle" and lengths_from is None and forced_from is None
    return "the directory of a run with the same prompts and seed, under another scheduler" if missing else None


def _world_has_engines(world: str, engine: str) -> str | None:
    absent = world == "emulated" and engine != "torch"
    return "rollout.engine.kind 'torch', which runs within this process" if absent else None


def _world_is_one_process(world: str, _layout: str) -> str | None:
    return "cluster null (cluster=none): an emulation is one process" if world == "emulated" else None


def _mean_is_below_the_longest(mean: int | None, longest: int) -> str | None:
    return f"below {longest}, or null" if mean is not None and mean >= longest else None


def _compares_models(compare: tuple[str, ...], world: str, mode: str) -> str | None:
    if compare and world != "simulated":
        return "[]: only the world 'simulated' compares schedulers"
    if "histopipe" in compare and mode != "pipelined":
        return "others than 'histopipe', which balances over two steps of run.mode 'pipelined'"
    return "each scheduler once" if len(set(compare)) < len(compare) else None


def _advises_by_models(advise: bool, world: str, compare: tuple[str, ...]) -> str | None:
    if advise and world != "simulated":
        return "false: only the world 'simulated' takes a configuration's time from models"
    return "false, or sim.compare []: advice compares schedulers itself" if advise and compare else None


def _advises_on_gpus(advise: bool, gpus: int) -> str | None:
    return "false, or a cluster with GPUs (cluster=gpu), whose use it advises on" if advise and not gpus else None


def _evaluates_between_steps(every: int, mode: str, _world: str) -> str | None:
    return "0: a simulation evaluates in run.mode 'sync' and 'async' alone" if every and mode == "pipelined" else None


def _controller_is_free(controller: str, world: str) -> str | None:
    measured = world == "simulated" and controller == "measured"
    return "'free': nothing is measured there" if measured else None


def _ahead_of_a_trainer(mode: str, shares: int, world: str) -> str | None:
    alone = mode == "async" and not shares and world == "emulated"
    return "'sync': without a trainer (sim.trainer_shares) no version is ever published" if alone else None


def _trains_for_real(shares: int, world: str) -> str | None:
    return "0: what training takes there comes from the cost model" if shares and world == "simulated" else None


def _ahead_by_what_is_given(shares: int, mode: str) -> str | None:
    return "0: in run.mode 'pipelined' a training step takes sim.train_s" if shares and mode == "pipelined" else None


def _training_is_modelled(train_s: float, world: str) -> str | None:
    return "0: what training takes there comes from the cost model" if train_s and world == "simulated" else None


def _seen_in_an_epoch(seen_before: bool, epoch_steps: int) -> str | None:
    return "false, or sim.workload.epoch_steps of 1 or more" if seen_before and not epoch_steps else None


def _one_rank_is_shared(num_ranks: int, shares: int) -> str | None:
    return "1: the emulated trainer is one rank" if shares and num_ranks > 1 else None


def _same_device(trainer: str, engine: str) -> str | None:
    return f"{engine!r}: weights travel from one to the other" if trainer != engine else None


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


def _replaced_in_a_stream(dynamic_sampling: bool, mode: str) -> str | None:
    return "false, or run.mode 'async', eta 0 included" if dynamic_sampling and mode != "async" else None


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


def _sums_are_numbers(reward: str, data: str) -> str | None:
    unfit = data == "sums" and reward in ("math", "code")
    return "'exact', 'function', 'judge' or 'remote'" if unfit else None


def _sums_answer_mark(answer_mark: str, data: str) -> str | None:
    return f"{ANSWER_MARK!r}, as the task writes it" if data == "sums" and answer_mark != ANSWER_MARK else None


def _servers_need_groups(servers: int, source: str) -> str | None:
    alone = servers and "grouped" not in source
    return "0: what servers bring is of the group, and goes with 'grouped'" if alone else None


def _a_chain(paths: int, source: str) -> str | None:
    return "1: a model drafts one chain" if source == "quantized" and paths > 1 else None


def _no_cut(min_token_prob: float, source: str) -> str | None:
    draws = source == "quantized" and min_token_prob > 0
    return "0: a model's drafts are drawn, the unlikely among them too" if draws else None


def _rejection_has_a_model(acceptance: str, source: str) -> str | None:
    missing = acceptance == "rejection" and source != "quantized"
    return "'coupled', or draft.source 'quantized': other drafts have no distribution to reject by" if missing else None


def _oracle_knows_the_tokens(acceptance: str, scheduler: str) -> str | None:
    unknown = acceptance == "rejection" and scheduler == "oracle"
    return "'coupled': under rejection the lengths of another run are not those of this one" if unknown else None


_LONGEST = ("data.max_prompt_tokens", "rollout.max_new_tokens")
_BATCH = ("algorithm.batch_size", "algorithm.group_size")
_ENGINE = "rollout.engine"
_OPTIMIZER = "trainer.optimizer"

RULES = (
    Rule(needs=("trainer.device", "rollout.engine.device"), check=_same_device),
    Rule(needs=("async.max_running_groups", "run.mode", *_BATCH), check=_batch_runs_at_once),
    Rule(needs=("async.keep_kv", "run.mode"), check=_kept_only_if_interrupted),
    Rule(needs=("rollout.over_issue", "run.mode"), check=_over_issue_takes_turns),
    Rule(needs=("rollout.over_issue", "rollout.stopped", "async.max_staleness"), check=_carried_in_time),
    Rule(needs=("rollout.scheduler", "run.mode"), check=_histopipe_streams),
    Rule(needs=("rollout.history_from", "rollout.scheduler"), check=_history_is_ranked_by),
    Rule(needs=("algorithm.overlong_tokens", "rollout.max_new_tokens"), check=_at_most),
    Rule(needs=("algorithm.dynamic_sampling", "run.mode"), check=_replaced_in_a_stream),
    Rule(needs=_BATCH, check=_whole_groups),
    Rule(needs=("algorithm.minibatches", *_BATCH), check=_equal_minibatches),
    Rule(needs=("algorithm.group_size", "algorithm.kind"), check=_groups_compare),
    Rule(needs=("data.num_prompts", *_BATCH), check=_epoch_fills_a_batch),
    Rule(needs=("data.max_prompt_tokens", "data.max_terms"), check=_longest_sum_fits),
    Rule(needs=("reward.kind", "data.kind"), check=_sums_are_numbers),
    Rule(needs=("reward.answer_mark", "data.kind"), check=_sums_answer_mark),
    *(Rule(needs=(f"reward.{key}", f"reward.{other}"), check=check) for (key, other), check in KEY_RULES),
    Rule(needs=("data.eval_path", "eval.every"), check=_held_out_file),
    Rule(needs=("eval.num_prompts", "data.num_eval_prompts", "eval.every"), check=_held_out_enough),
    Rule(needs=("rollout.lengths_from", "rollout.scheduler", "rollout.forced_lengths_from"), check=_oracle_has_lengths),
    Rule(needs=("rollout.engine.kv_capacity_tokens", *_LONGEST), check=_request_fits_cache),
    Rule(needs=("rollout.engine.max_running", "rollout.engine.max_step_tokens"), check=_at_most),
    Rule(needs=("rollout.chunk_tokens", "rollout.kv_pool.kind", "rollout.scheduler"), check=_chunk_fills_a_page),
    Rule(needs=("rollout.kv_pool.ssd_dir", "rollout.kv_pool.ssd_bytes"), check=_ssd_has_a_folder),
    Rule(needs=("rollout.kv_pool.master", "rollout.kv_pool.kind"), check=_master_has_a_port),
    Rule(needs=("rollout.kv_pool.device", "rollout.kv_pool.protocol"), check=_device_of_rdma),
    Rule(needs=("sim.world", f"{_ENGINE}.kind"), check=_world_has_engines),
    Rule(needs=("sim.world", "cluster.layout"), check=_world_is_one_process),
    Rule(needs=("sim.compare", "sim.world", "run.mode"), check=_compares_models),
    Rule(needs=("sim.advise", "sim.world", "sim.compare"), check=_advises_by_models),
    Rule(needs=("sim.advise", "cluster.gpus"), check=_advises_on_gpus),
    Rule(needs=("sim.controller", "sim.world"), check=_controller_is_free),
    Rule(needs=("eval.every", "run.mode", "sim.world"), check=_evaluates_between_steps),
    Rule(needs=("rollout.expected_tokens", "rollout.max_new_tokens"), check=_mean_is_below_the_longest),
    Rule(needs=("run.mode", "sim.trainer_shares", "sim.world"), check=_ahead_of_a_trainer),
    Rule(needs=("sim.trainer_shares", "run.mode"), check=_ahead_by_what_is_given),
    Rule(needs=("sim.trainer_shares", "sim.world"), check=_trains_for_real),
    Rule(needs=("sim.train_s", "sim.world"), check=_training_is_modelled),
    Rule(needs=("sim.workload.seen_before", "sim.workload.epoch_steps"), check=_seen_in_an_epoch),
    Rule(needs=("trainer.num_ranks", "sim.trainer_shares"), check=_one_rank_is_shared),
    Rule(needs=("draft.servers", "draft.source"), check=_servers_need_groups),
    Rule(needs=("draft.paths", "draft.source"), check=_a_chain),
    Rule(needs=("draft.min_token_prob", "draft.source"), check=_no_cut),
    Rule(needs=("draft.acceptance", "draft.source"), check=_rejection_has_a_model),
    Rule(needs=("draft.acceptance", "rollout.scheduler"), check=_oracle_knows_the_tokens),
    Rule(needs=("trainer.max_micro_batch_tokens", *_LONGEST), check=_sample_fits_micro_batch),
    Rule(needs=("trainer.num_ranks", "trainer.tensor_parallel", "trainer.pipeline_parallel"), check=_whole_replicas),
    Rule(needs=("trainer.sequence_parallel", "trainer.tensor_parallel"), check=_sequence_is_shared),
    Rule(
        needs=(f"{_OPTIMIZER}.decay_steps", f"{_OPTIMIZER}.warmup_steps", f"{_OPTIMIZER}.decay"),
        check=_decay_after_warmup,
    ),
    Rule(needs=(f"{_OPTIMIZER}.min_learning_rate", f"{_OPTIMIZER}.learning_rate"), check=_at_most),
    *MODEL_RULES,
    *SERVER_RULES,
    *CLUSTER_RULES,
)
