"""A batch of rewarded samples becomes optimizer steps on the policy.

advantages -> align -> minibatches -> micro-batches, with logprobs to compare with -> one step per minibatch
"""

import dataclasses

import torch
from megatron.core import parallel_state as ps
from torch import Tensor

from sestina.algorithms.advantages import Advantages
from sestina.algorithms.config import AlgorithmConfig
from sestina.algorithms.estimates import advantages
from sestina.algorithms.objective import policy_loss
from sestina.core.errors import MismatchError
from sestina.core.units import Version
from sestina.trainer import microbatch
from sestina.trainer.microbatch import MicroBatch, Samples
from sestina.trainer.reference import Reference
from sestina.trainer.trainer import Metrics, Trainer, mean_over
from sestina.transport.messages import SampleBatch

DIFFERENCE = "train_rollout_logprob_abs_diff"


class PolicyTrainer:
    """Trains a policy; collective, as everything of `Trainer`. Keeps the initial weights when there is a KL penalty."""

    def __init__(self, trainer: Trainer, algorithm: AlgorithmConfig, *, max_tokens: int) -> None:
        """`max_tokens`: of a response."""
        self._trainer = trainer
        self._algorithm = algorithm
        self._max_tokens = max_tokens
        self._reference = Reference(trainer.model) if algorithm.kl_coefficient else None

    def train(self, batch: SampleBatch, *, temperature: float, version: Version = 0) -> Metrics:
        """Take the optimizer steps of one batch from weights of `version`; returns metrics of the `train/` namespace.

        Raises MismatchError, before any weight changes, when the first minibatch's logprobs differ on average by more
        than `max_logprob_diff` from those that the rollout recorded with the same weights.
        """
        found = self._advantages(batch)
        samples = microbatch.align(batch, found.values.numpy(), found.counted.numpy(), version=version)
        chosen = microbatch.minibatches(samples, self._algorithm.minibatches)
        counted = [samples_of for samples_of in chosen if samples.response_lengths[samples_of].any()]
        # Before the first step: all of them are compared with the weights that the batch begins with.
        prepared = [self._micro_batches(samples, samples_of, temperature) for samples_of in counted]
        steps: list[Metrics] = []
        for batches in prepared:
            steps.append(self._step(batches, temperature, on_policy=not steps))
        metrics = mean_over(steps) | {"skipped_minibatches": len(chosen) - len(counted)} | _describe(found)
        return {f"train/{name}": float(value) for name, value in metrics.items()}

    def _advantages(self, batch: SampleBatch) -> Advantages:
        rewards, groups, lengths, drawn = (
            torch.from_numpy(values.copy())
            for values in (batch.rewards, batch.groups, batch.response_lengths, batch.drawn_lengths)
        )
        return advantages(
            self._algorithm, rewards=rewards, groups=groups, lengths=lengths, drawn=drawn, max_tokens=self._max_tokens
        )

    def _step(self, batches: list[MicroBatch], temperature: float, *, on_policy: bool) -> Metrics:
        """Only the first step of a batch runs on the weights that it begins with, and can be checked against them."""

        def loss(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
            return policy_loss(logprobs, entropy, batch.policy, self._algorithm)

        check = self._check if on_policy else None
        metrics = self._trainer.step(batches, loss, temperature=temperature, check=check)
        difference, fresh = metrics.pop(DIFFERENCE), metrics["fresh_token_ratio"]
        return metrics | ({DIFFERENCE: difference / fresh} if on_policy and fresh else {})

    def _check(self, metrics: Metrics) -> None:
        fresh, limit = metrics["fresh_token_ratio"], self._trainer.config.max_logprob_diff
        if not fresh:
            return  # older weights have drawn every token
        found = metrics[DIFFERENCE] / fresh
        if not found <= limit:  # NaN is refused too
            raise MismatchError(
                f"logprobs of trainer and rollout differ by {found:.3g} on average over a minibatch; "
                f"trainer.max_logprob_diff allows {limit:g}"
            )

    def _micro_batches(self, samples: Samples, chosen: list[int], temperature: float) -> list[MicroBatch]:
        config = self._trainer.config
        batches = microbatch.micro_batches(
            samples,
            chosen,
            budget=config.max_micro_batch_tokens,
            replicas=ps.get_data_parallel_world_size(),
            replica=ps.get_data_parallel_rank(),
            loss_mean=self._algorithm.loss_mean,
            pad_to=config.tensor_parallel if config.sequence_parallel else 1,
            device=self._trainer.device,
        )
        if self._algorithm.proximal == "recomputed":
            batches = self._with_logprobs(batches, temperature, "proximal_logprobs")
        if self._reference is not None:
            with self._reference.swapped_in():
                batches = self._with_logprobs(batches, temperature, "reference_logprobs")
        return batches

    def _with_logprobs(self, batches: list[MicroBatch], temperature: float, name: str) -> list[MicroBatch]:
        """Add the model's logprobs to what the last pipeline stage is told of each token; others have none."""
        found = self._trainer.logprobs(batches, temperature=temperature) or [None] * len(batches)
        policies = [
            dataclasses.replace(batch.policy, **{name: logprobs})
            for batch, logprobs in zip(batches, found, strict=True)
        ]
        return [dataclasses.replace(batch, policy=policy) for batch, policy in zip(batches, policies, strict=True)]


def _describe(advantages: Advantages) -> Metrics:
    return {
        "equal_reward_groups": advantages.num_equal_groups,
        "uncounted_samples": int((~advantages.counted).sum()),
        "advantage_abs_mean": float(advantages.values.abs().mean()),
    }
