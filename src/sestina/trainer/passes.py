"""Forward and backward passes over micro-batches, through Megatron's schedules whatever the pipeline."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from megatron.core import parallel_state as ps
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from sestina.algorithms.tokens import Sums
from sestina.trainer.logprobs import logprobs_and_entropy
from sestina.trainer.microbatch import MicroBatch

Loss: TypeAlias = Callable[[Tensor, Tensor, MicroBatch], tuple[Tensor, Sums]]
"""(logprobs [T], entropy [T], micro-batch) -> (loss sum, metric sums)."""


def train_pass(
    ddp: DistributedDataParallel,
    optimizer: MegatronOptimizer,
    batches: Sequence[MicroBatch],
    loss: Loss,
    *,
    temperature: float,
) -> Sums:
    """Leave in the model the gradient of sum(loss) / sum(denominator) over all replicas; return summed metrics.

    The sums hold "denominator" too, and are the same on every rank.
    """
    ddp.zero_grad_buffer()
    # The optimizer leaves `grad` pointing at the buffer; backward would then add every gradient twice.
    optimizer.zero_grad()
    outputs = _run(ddp, batches, partial(_train_step, loss, temperature), forward_only=False)
    return _reduce(outputs, next(ddp.parameters()).device)


def logprob_pass(ddp: DistributedDataParallel, batches: Sequence[MicroBatch], *, temperature: float) -> list[Tensor]:
    """Return each micro-batch's logprobs [T] without gradients; empty on all but the last pipeline stage."""
    with torch.no_grad():
        return _run(ddp, batches, partial(_logprob_step, temperature), forward_only=True)


def _run(
    ddp: DistributedDataParallel, batches: Sequence[MicroBatch], step: Callable[..., object], *, forward_only: bool
) -> list[Any]:
    return get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=iter(batches),
        model=[ddp],
        num_microbatches=len(batches),
        # Unused: shapes are exchanged between stages (variable_seq_lengths).
        seq_length=1,
        micro_batch_size=1,
        forward_only=forward_only,
    )


def _train_step(
    loss: Loss, temperature: float, batches: Iterator[MicroBatch], model: torch.nn.Module
) -> tuple[Tensor, Callable[[Tensor], object]]:
    batch = next(batches)

    def reduce_loss(logits: Tensor) -> tuple[Tensor, Tensor, Sums]:
        value, sums = loss(*_predictions(logits, batch, temperature), batch)
        denominator = torch.tensor(batch.denominator, dtype=torch.int, device=value.device)
        return value, denominator, {**sums, "denominator": denominator.float()}

    return _forward(model, batch), reduce_loss


def _logprob_step(
    temperature: float, batches: Iterator[MicroBatch], model: torch.nn.Module
) -> tuple[Tensor, Callable[[Tensor], object]]:
    batch = next(batches)

    def keep(logits: Tensor) -> tuple[Tensor, Tensor]:
        logprobs, _ = _predictions(logits, batch, temperature)
        return logprobs.sum(), logprobs

    return _forward(model, batch), keep


def _forward(model: torch.nn.Module, batch: MicroBatch) -> Tensor:
    return model(batch.tokens, batch.positions, None, packed_seq_params=batch.packing)


def _predictions(logits: Tensor, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
    group: Any = ps.get_tensor_model_parallel_group()
    return logprobs_and_entropy(logits[0], batch.targets, temperature=temperature, group=group)


def _reduce(outputs: list[Sums], device: torch.device) -> Sums:
    """Add sums over micro-batches and replicas on the last stage, then hand them to every stage."""
    names: list[list[str]] = [sorted(outputs[0]) if outputs else []]
    last = ps.get_pipeline_model_parallel_last_rank()
    pipeline: Any = ps.get_pipeline_model_parallel_group()
    replicas: Any = ps.get_data_parallel_group()
    if ps.get_pipeline_model_parallel_world_size() > 1:
        dist.broadcast_object_list(names, src=last, group=pipeline)
    totals = torch.zeros(len(names[0]), dtype=torch.float64, device=device)
    if outputs:
        totals = torch.stack([torch.stack([sums[name].double() for name in names[0]]) for sums in outputs]).sum(0)
        dist.all_reduce(totals, group=replicas)
    if ps.get_pipeline_model_parallel_world_size() > 1:
        dist.broadcast(totals, src=last, group=pipeline)
    return dict(zip(names[0], totals.cpu(), strict=True))
