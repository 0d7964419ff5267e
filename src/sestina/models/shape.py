"""The architecture of a Qwen2 decoder as config.json states it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sestina.core.errors import ModelError
from sestina.models.config import GroupedAttentionConfig, ShapeConfig

ARCHITECTURE = "Qwen2ForCausalLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes and constants of a `Qwen2ForCausalLM`."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    max_positions: int
    rope_theta: float
    norm_eps: float
    tied: bool
    """True when the output layer is the embedding."""

    @property
    def qkv_size(self) -> int:
        """Width of the fused query, key and value projection."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_size

    @property
    def num_parameters(self) -> int:
        """Number of trained values; tied ones count once."""
        total = 0
        for size in self.tensors().values():
            count = 1
            for extent in size:
                count *= extent
            total += count
        return total

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor of a checkpoint, by its Hugging Face name."""
        hidden, query, kv = self.hidden_size, self.num_heads * self.head_size, self.num_kv_heads * self.head_size
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}."
            shapes |= {
                prefix + "input_layernorm.weight": (hidden,),
                prefix + "self_attn.q_proj.weight": (query, hidden),
                prefix + "self_attn.q_proj.bias": (query,),
                prefix + "self_attn.k_proj.weight": (kv, hidden),
                prefix + "self_attn.k_proj.bias": (kv,),
                prefix + "self_attn.v_proj.weight": (kv, hidden),
                prefix + "self_attn.v_proj.bias": (kv,),
                prefix + "self_attn.o_proj.weight": (hidden, query),
                prefix + "post_attention_layernorm.weight": (hidden,),
                prefix + "mlp.gate_proj.weight": (self.ffn_size, hidden),
                prefix + "mlp.up_proj.weight": (self.ffn_size, hidden),
                prefix + "mlp.down_proj.weight": (hidden, self.ffn_size),
            }
        shapes["model.norm.weight"] = (hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes

    def planned(self) -> ShapeConfig:
        """Return the same as a configuration states it."""
        return ShapeConfig(
            architecture=ARCHITECTURE,
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            ffn_size=self.ffn_size,
            max_positions=self.max_positions,
            tied=self.tied,
            attention=GroupedAttentionConfig(
                kind="grouped",
                num_heads=self.num_heads,
                num_kv_heads=self.num_kv_heads,
                head_size=self.head_size,
                qkv_bias=True,
                qk_norm=False,
            ),
        )

    def to_hf(self) -> dict[str, Any]:
        """Return the contents of a config.json that transformers reads back as this shape."""
        return {
            "architectures": [ARCHITECTURE],
            "model_type": "qwen2",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_size,
            "intermediate_size": self.ffn_size,
            "max_position_embeddings": self.max_positions,
            "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied,
            "hidden_act": "silu",
            "use_sliding_window": False,
            "torch_dtype": "float32",
        }


def read_shape(directory: Path) -> ModelShape:
    """Read config.json; raises ModelError when it is missing, not JSON, or of a model this system cannot run."""
    path = directory / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; a model directory holds config.json and safetensors") from None
    except ValueError as error:
        raise ModelError(f"{path}: not JSON: {error}") from None
    _refuse_unsupported(path, config)
    try:
        return _parse(config)
    except KeyError as missing:
        raise ModelError(f"{path}: key {missing} is missing") from None


def _parse(config: dict[str, Any]) -> ModelShape:
    rope = config.get("rope_parameters") or {}
    heads = config["num_attention_heads"]
    return ModelShape(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads", heads),
        head_size=config.get("head_dim") or config["hidden_size"] // heads,
        ffn_size=config["intermediate_size"],
        max_positions=config["max_position_embeddings"],
        rope_theta=float(rope["rope_theta"] if "rope_theta" in rope else config["rope_theta"]),
        norm_eps=config["rms_norm_eps"],
        tied=config.get("tie_word_embeddings", False),
    )


def _refuse_unsupported(path: Path, config: dict[str, Any]) -> None:
    architectures = config.get("architectures")
    if architectures != [ARCHITECTURE]:
        raise ModelError(f"{path}: architectures is {architectures}; supported: ['{ARCHITECTURE}']")
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ModelError(f"{path}: rope type is '{kind}'; supported: 'default'")
    if config.get("use_sliding_window"):
        raise ModelError(f"{path}: use_sliding_window is true; only full attention is supported")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{path}: hidden_act is '{config['hidden_act']}'; supported: 'silu'")
