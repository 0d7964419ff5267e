"""Megatron's GPTModel, wrapped for data parallelism, and its optimizer; process groups must exist."""

import torch
import torch.nn.functional as F
from megatron.core import parallel_state as ps
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from sestina.models.shape import ModelShape
from sestina.trainer.backend import Backend
from sestina.trainer.config import TrainerConfig


def transformer_config(shape: ModelShape, config: TrainerConfig, backend: Backend) -> TransformerConfig:
    """Translate our configuration; what is fixed here is fixed for a reason given beside it."""
    dtype = getattr(torch, config.dtype)
    recompute = None if config.recompute == "none" else config.recompute
    return TransformerConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_heads,
        num_query_groups=shape.num_kv_heads,
        kv_channels=shape.head_size,
        ffn_hidden_size=shape.ffn_size,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_eps,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        tensor_model_parallel_size=config.tensor_parallel,
        pipeline_model_parallel_size=config.pipeline_parallel,
        sequence_parallel=config.sequence_parallel,
        use_cpu_initialization=True,
        # Gradients are divided once, by the whole batch's denominator. Set before DDP reads it: afterwards they would
        # also be divided by the number of replicas, which Adam hides in the loss.
        calculate_per_token_loss=True,
        # Packs differ in length; Megatron allows that only together with this dispatcher, even for dense models.
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",
        # Batched sends between two stages mix up interleaved chunks without an error.
        batch_p2p_comm=False,
        recompute_granularity=recompute,
        recompute_method="uniform" if recompute == "full" else None,
        recompute_num_layers=1 if recompute == "full" else None,
        **backend.fusions,
    )


def build_model(shape: ModelShape, config: TrainerConfig, backend: Backend) -> GPTModel:
    """Build this rank's part of the model, with unspecified weights."""
    tc = transformer_config(shape, config, backend)
    return GPTModel(
        config=tc,
        transformer_layer_spec=backend.layer_spec(tc),
        vocab_size=shape.vocab_size,
        max_sequence_length=shape.max_positions,
        pre_process=ps.is_pipeline_first_stage(),
        post_process=ps.is_pipeline_last_stage(),
        position_embedding_type="rope",
        rotary_base=int(shape.rope_theta),
        share_embeddings_and_output_weights=shape.tied,
        parallel_output=True,
    ).to(backend.device)


def wrap(model: GPTModel, config: TrainerConfig) -> DistributedDataParallel:
    """Put a model whose weights are loaded under data parallelism."""
    tc: TransformerConfig = model.config
    module = Float16Module(tc, model) if config.dtype == "bfloat16" else model
    ddp_config = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=config.distributed_optimizer
    )
    ddp = DistributedDataParallel(tc, ddp_config, module)
    tc.finalize_model_grads_func = finalize_model_grads
    tc.no_sync_func = ddp.no_sync
    return ddp


def build_optimizer(
    ddp: DistributedDataParallel, config: TrainerConfig
) -> tuple[MegatronOptimizer, OptimizerParamScheduler]:
    """Return AdamW over the wrapped model and its learning-rate schedule."""
    asked = config.optimizer
    optimizer_config = OptimizerConfig(
        optimizer="adam",
        lr=asked.learning_rate,
        min_lr=asked.min_learning_rate,
        weight_decay=asked.weight_decay,
        adam_beta1=asked.beta1,
        adam_beta2=asked.beta2,
        adam_eps=asked.eps,
        clip_grad=asked.clip_grad,
        bf16=config.dtype == "bfloat16",
        params_dtype=getattr(torch, config.dtype),
        use_distributed_optimizer=config.distributed_optimizer,
    )
    optimizer = get_megatron_optimizer(optimizer_config, [ddp])
    ddp.config.grad_scale_func = optimizer.scale_loss
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=asked.learning_rate,
        min_lr=asked.min_learning_rate,
        lr_warmup_steps=asked.warmup_steps,
        lr_decay_steps=max(asked.decay_steps, asked.warmup_steps + 1),
        lr_decay_style=asked.decay,
        start_wd=asked.weight_decay,
        end_wd=asked.weight_decay,
        wd_incr_steps=asked.decay_steps,
        wd_incr_style="constant",
    )
    return optimizer, scheduler
