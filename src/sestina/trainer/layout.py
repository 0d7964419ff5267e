"""Whether a model can be cut as the configuration asks; no torch, so that it is known before anything starts."""

from sestina.core.errors import ConfigError
from sestina.models.shape import ModelShape
from sestina.trainer.config import TrainerConfig


def check_layout(shape: ModelShape, config: TrainerConfig) -> None:
    """Raise ConfigError naming every size of the model that the parallel layout does not divide."""
    tensor, pipeline = config.tensor_parallel, config.pipeline_parallel
    cuts = [
        ("tensor_parallel", tensor, "vocabulary", shape.vocab_size),
        ("tensor_parallel", tensor, "attention heads", shape.num_heads),
        ("tensor_parallel", tensor, "key/value heads", shape.num_kv_heads),
        ("tensor_parallel", tensor, "feed-forward size", shape.ffn_size),
        ("pipeline_parallel", pipeline, "layers", shape.num_layers),
    ]
    wrong = [
        f"trainer.{key}: {parts} does not divide the model's {what}, {size}"
        for key, parts, what, size in cuts
        if size % parts
    ]
    if wrong:
        raise ConfigError(wrong)
