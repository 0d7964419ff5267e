"""What the trainer ranks of a run are made from."""

import logging
import warnings

from sestina.config.run import RunConfig
from sestina.models.shape import read_shape
from sestina.trainer.job import TrainerJob


def trainer_job(config: RunConfig) -> TrainerJob:
    """Return the settings of the trainer ranks; raises ModelError when the model cannot be read."""
    return TrainerJob(
        trainer=config.trainer,
        algorithm=config.algorithm,
        max_new_tokens=config.rollout.max_new_tokens,
        model=config.model.path,
        shape=read_shape(config.model.path),
        seed=config.seed,
        bucket_bytes=config.weights.bucket_bytes,
        weights_timeout_s=config.weights.timeout_s,
        start_s=config.deadlines.start_s,
        train_s=config.deadlines.train_s,
        checkpoint_s=config.deadlines.checkpoint_s,
    )


def silence_megatron() -> None:
    """Have Megatron not warn, on import, of every accelerator library that it does not find."""
    warnings.filterwarnings("ignore", module="megatron")
    logging.getLogger("megatron").setLevel(logging.ERROR)
