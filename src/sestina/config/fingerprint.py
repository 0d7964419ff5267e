"""Which keys a resumed run may change, and a fingerprint of those it may not.

A run may change what cannot change a trained weight. Everything else is pinned, so that the steps before and after a
resume are of one experiment.
"""

import hashlib
import json

from sestina.config.resolved import as_flat_dict
from sestina.config.run import RunConfig
from sestina.config.schema import shown

FREE = {
    "name": "a label",
    "dir": "a run directory may be moved",
    "resume": "says how to start, not what",
    "run.steps": "a longer run takes the same steps first; no schedule depends on it",
    "run.checkpoint_every": "what is written, not what is computed",
    "run.keep_checkpoints": "what is written, not what is computed",
    "eval.every": "evaluation reads weights and has its own noise",
    "async.bias_alarm": "a warning",
    "model.shape": "says what the files of model.path say, which is checked",
    "rollout.num_instances": "a token depends on weights, prompt, sample, position and seed alone",
    "rollout.scheduler": "as rollout.num_instances",
    "rollout.chunk_tokens": "as rollout.num_instances",
    "rollout.affinity_requests": "as rollout.num_instances",
    "rollout.lengths_from": "as rollout.num_instances",
    "rollout.expected_tokens": "what is foreseen, not what is computed",
    "rollout.ranking_groups": "as rollout.num_instances",
    "rollout.history_from": "as rollout.num_instances",
    "rollout.kv_pool": "as rollout.num_instances",
    "rollout.engine.kv_capacity_tokens": "as rollout.num_instances",
    "rollout.engine.memory_fraction": "as rollout.num_instances",
    "rollout.engine.max_running": "as rollout.num_instances",
    "rollout.engine.max_step_tokens": "as rollout.num_instances",
    "rollout.engine.page_tokens": "as rollout.num_instances",
    "rollout.engine.bucket_bytes": "how weights travel",
    "rollout.engine.weights": "how weights travel",
    "rollout.engine.python": "where SGLang is installed; its version is checked",
    "rollout.engine.start_s": "ends a run, and changes nothing before",
    "rollout.engine.silence_s": "a lost server's chunks are asked for again",
    "rollout.engine.max_restarts": "ends a run, and changes nothing before",
    "draft": "drafts change no token, but for those of HELD",
    "reward.num_workers": "a reward depends on its response alone",
    "environment.num_workers": "an answer depends on its response alone",
    "reward.isolation": "keeps a program in, and changes nothing it computes",
    "reward.url": "where rewards are asked for, not by what",
    "reward.key_env": "as reward.url",
    "reward.key_file": "as reward.url",
    "reward.max_attempts": "as reward.url",
    "reward.max_requests": "ends a run, and changes nothing before",
    "reward.max_tokens": "as reward.max_requests",
    "trainer.max_logprob_diff": "ends a run, and changes nothing before",
    "weights": "how weights travel; checksums hold them to every bit",
    "cluster": "where ranks run, not what they compute",
    "sim": "where time comes from, not what is computed",
    "deadlines": "end a run, and change nothing before",
    "telemetry": "what is recorded",
}
"""Keys, or whole sections, that a resumed run may change, and why. Not here on purpose: what evaluation measures
(eval.num_prompts, eval.temperature, the held-out set), since one curve has to be of one thing; reward.timeout_s, which
decides about slow rewards; the trainer's layout and micro-batches, which decide the order of floating-point sums."""

HELD = {"draft.acceptance": "rejection changes tokens, though not their distribution"}
"""Keys of free sections that are pinned all the same, and why."""

_ABSENT = "absent"


def fingerprint(config: RunConfig) -> str:
    """Return a SHA-256 over the pinned keys and their values."""
    return hashlib.sha256(json.dumps(_pinned(config), sort_keys=True).encode()).hexdigest()


def differing_keys(before: RunConfig, after: RunConfig) -> list[str]:
    """Return `key: before -> after` for each pinned key that differs; empty exactly when fingerprints are equal."""
    old, new = _pinned(before), _pinned(after)
    keys = [*old, *(key for key in new if key not in old)]
    return [f"{key}: {_at(old, key)} -> {_at(new, key)}" for key in keys if _at(old, key) != _at(new, key)]


def _pinned(config: RunConfig) -> dict[str, object]:
    return {key: value for key, value in as_flat_dict(config).items() if not _is_free(key)}


def _is_free(key: str) -> bool:
    parts = key.split(".")
    return key not in HELD and any(".".join(parts[:depth]) in FREE for depth in range(1, len(parts) + 1))


def _at(values: dict[str, object], key: str) -> str:
    return shown(values[key]) if key in values else _ABSENT
