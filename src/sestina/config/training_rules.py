"""Rules between keys of training: batches, minibatches, data, rewards, evaluation, the trainer and its optimizer."""

from sestina.config.rule import Rule, at_most
from sestina.data.sums import ANSWER_MARK
from sestina.rewards.key_rules import KEY_RULES


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


def _sample_fits_micro_batch(budget_tokens: int, prompt_tokens: int, new_tokens: int) -> str | None:
    needed = prompt_tokens + new_tokens
    return f"at least {needed}: the longest prompt and response" if budget_tokens < needed else None


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


def _same_device(trainer: str, engine: str) -> str | None:
    return f"{engine!r}: weights travel from one to the other" if trainer != engine else None


def _replaced_in_a_stream(dynamic_sampling: bool, mode: str) -> str | None:
    return "false, or run.mode 'async', eta 0 included" if dynamic_sampling and mode != "async" else None


def _sums_are_numbers(reward: str, data: str) -> str | None:
    unfit = data == "sums" and reward in ("math", "code")
    return "'exact', 'function', 'judge' or 'remote'" if unfit else None


def _sums_answer_mark(answer_mark: str, data: str) -> str | None:
    return f"{ANSWER_MARK!r}, as the task writes it" if data == "sums" and answer_mark != ANSWER_MARK else None


_LONGEST = ("data.max_prompt_tokens", "rollout.max_new_tokens")
_BATCH = ("algorithm.batch_size", "algorithm.group_size")
_OPTIMIZER = "trainer.optimizer"

TRAINING_RULES = (
    Rule(needs=("trainer.device", "rollout.engine.device"), check=_same_device),
    Rule(needs=("algorithm.overlong_tokens", "rollout.max_new_tokens"), check=at_most),
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
    Rule(needs=("trainer.max_micro_batch_tokens", *_LONGEST), check=_sample_fits_micro_batch),
    Rule(needs=("trainer.num_ranks", "trainer.tensor_parallel", "trainer.pipeline_parallel"), check=_whole_replicas),
    Rule(needs=("trainer.sequence_parallel", "trainer.tensor_parallel"), check=_sequence_is_shared),
    Rule(
        needs=(f"{_OPTIMIZER}.decay_steps", f"{_OPTIMIZER}.warmup_steps", f"{_OPTIMIZER}.decay"),
        check=_decay_after_warmup,
    ),
    Rule(needs=(f"{_OPTIMIZER}.min_learning_rate", f"{_OPTIMIZER}.learning_rate"), check=at_most),
)
