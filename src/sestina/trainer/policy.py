"""A batch of rewarded samples becomes optimizer steps on the policy.

advantages -> align -> minibatches -> micro-batches -> one optimizer step per minibatch
"""

import dataclasses

import torch
from megatron.core import parallel_state as ps
from torch import Tensor

from sestina.algorithms.advantages import Advantages, group_advantages
from sestina.algorithms.config import GRPOConfig
from sestina.algorithms.grpo import policy_loss
from sestina.core.errors import MismatchError
from sestina.trainer import microbatch
from sestina.trainer.microbatch import MicroBatch, Samples
from sestina.trainer.reference import Reference
from sestina.trainer.trainer import Metrics, Trainer, mean_over
from sestina.transport.messages import SampleBatch

DIFFERENCE = "train_rollout_logprob_abs_diff"


class PolicyTrainer:
    """Trains by GRPO; collective, as everything of `Trainer`. Keeps the initial weights when there is a KL penalty."""

    def __init__(self, trainer: Trainer, algorithm: GRPOConfig) -> None:
        self._trainer = trainer
        self._algorithm = algorithm
        self._reference = Reference(trainer.model) if algorithm.kl_coefficient else None

    def train(self, batch: SampleBatch, *, temperature: float) -> Metrics:
        """Take the optimizer steps of one batch; returns metrics of the `train/` namespace.

        Raises MismatchError, before any weight changes, when the first minibatch's logprobs differ on average by more
        than `max_logprob_diff` from those the rollout recorded.
        """
        advantages = group_advantages(
            torch.from_numpy(batch.rewards.copy()),
            torch.from_numpy(batch.groups.copy()),
            self._algorithm.advantage_scale,
        )
        samples = microbatch.align(batch, advantages.values.numpy(), advantages.counted.numpy())
        steps: list[Metrics] = []
        skipped = 0
        for chosen in microbatch.minibatches(samples, self._algorithm.minibatches):
            if samples.response_lengths[chosen].any():
                steps.append(self._step(samples, chosen, temperature, on_policy=not steps))
            else:
                skipped += 1
        metrics = mean_over(steps) | {"skipped_minibatches": skipped} | _describe(advantages)
        return {f"train/{name}": float(value) for name, value in metrics.items()}

    def _step(self, samples: Samples, chosen: list[int], temperature: float, *, on_policy: bool) -> Metrics:
        """Only the first step of a batch runs on the weights that sampled it, and can be checked against them."""

        def loss(logprobs: Tensor, entropy: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
            return policy_loss(logprobs, entropy, batch.policy, self._algorithm)

        batches = self._micro_batches(samples, chosen, temperature)
        check = self._check if on_policy else None
        metrics = self._trainer.step(batches, loss, temperature=temperature, check=check)
        if not on_policy:
            del metrics[DIFFERENCE]
        return metrics

    def _check(self, metrics: Metrics) -> None:
        found, limit = metrics[DIFFERENCE], self._trainer.config.max_logprob_diff
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
        if self._reference is None:
            return batches
        with self._reference.swapped_in():
            logprobs = self._trainer.logprobs(batches, temperature=temperature)
        return [_with_reference(*pair) for pair in zip(batches, logprobs, strict=True)] if logprobs else batches


def _with_reference(batch: MicroBatch, logprobs: Tensor) -> MicroBatch:
    return dataclasses.replace(batch, policy=dataclasses.replace(batch.policy, reference_logprobs=logprobs))


def _describe(advantages: Advantages) -> Metrics:
    return {
        "equal_reward_groups": advantages.num_equal_groups,
        "uncounted_samples": int((~advantages.counted).sum()),
        "advantage_abs_mean": float(advantages.values.abs().mean()),
    }
