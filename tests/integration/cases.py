"""What trainer tests train with; imports no Megatron."""

from pathlib import Path

import numpy as np

from sestina.transport.messages import SampleBatch

OPTIMIZER = {
    "learning_rate": 1e-3,
    "min_learning_rate": 1e-4,
    "warmup_steps": 2,
    "decay": "linear",
    "decay_steps": 20,
    "weight_decay": 0.01,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-5,  # above the rounding of gradients: Adam makes a whole step of a gradient that is nothing but rounding
    "clip_grad": 1.0,
}
TRAINER = {
    "num_ranks": 1,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "sequence_parallel": False,
    "expert_parallel": 1,
    "expert_tensor_parallel": 1,
    "distributed_optimizer": False,
    "recompute": "none",
    "device": "cpu",
    "dtype": "float32",
    "max_micro_batch_tokens": 160,
    "max_logprob_diff": 10.0,
}
ALGORITHM = {
    "kind": "grpo",
    "batch_size": 32,
    "group_size": 4,
    "minibatches": 1,
    "clip_low": 0.2,
    "clip_high": 0.3,
    "advantage_scale": "std",
    "loss_mean": "token",
    "kl_coefficient": 0.0,
    "proximal": "behaviour",
    "behaviour_weight_cap": 5.0,
}
TEMPERATURE = 0.8


def load_batch(path: Path) -> SampleBatch:
    return SampleBatch(**np.load(path))
