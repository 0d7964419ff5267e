"""A decoder's weights as its products read them, queries, keys and values in one, gate and up in one; its activations.

Decoders of one process may have both in common.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from sestina.core.errors import EngineError
from sestina.models.shape import ModelShape
from sestina.rollout.products import Dense, Product


@dataclass(frozen=True, slots=True)
class Layer:
    """Norms, and products by fused weights."""

    input_norm: Tensor
    qkv: Product
    output: Product
    ffn_norm: Tensor
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class DenseLayer(Layer):
    """A layer of the model itself, whose weights are loaded."""

    qkv: Dense
    output: Dense
    gate_up: Dense
    down: Dense

    @property
    def products(self) -> tuple[Dense, ...]:
        """All that a drafter may have in another form."""
        return self.qkv, self.output, self.gate_up, self.down


class Weights:
    """Of all layers, the embedding and what follows the layers; zero until they are copied."""

    def __init__(self, shape: ModelShape, empty: "Allocator") -> None:
        self._made_by = shape, empty
        self.source: Mapping[str, Tensor] | None = None
        """What decoders know these weights by that have them in common; kept, so that nothing else is known by it."""
        hidden, query = shape.hidden_size, shape.num_heads * shape.head_size
        self.embedding = empty(shape.vocab_size, hidden)
        self.layers = [
            DenseLayer(
                input_norm=empty(hidden),
                qkv=Dense(empty(shape.qkv_size, hidden).t(), empty(shape.qkv_size)),
                output=Dense(empty(hidden, query).t()),
                ffn_norm=empty(hidden),
                gate_up=Dense(empty(2 * shape.ffn_size, hidden).t()),
                down=Dense(empty(hidden, shape.ffn_size).t()),
            )
            for _ in range(shape.num_layers)
        ]
        self.norm = empty(hidden)
        self.head = self.embedding if shape.tied else empty(shape.vocab_size, hidden)

    def another(self) -> "Weights":
        """Return weights of the same sizes, zero until they are copied."""
        return Weights(*self._made_by)

    @torch.inference_mode()
    def copy(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy a checkpoint's tensors, already checked against the shape."""
        self.embedding.copy_(tensors["model.embed_tokens.weight"])
        for index, layer in enumerate(self.layers):
            prefix = f"model.layers.{index}."

            def fused(part: str, names: tuple[str, ...], at: str = prefix) -> Tensor:
                return torch.cat([tensors[at + name + part] for name in names])

            projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
            layer.input_norm.copy_(tensors[prefix + "input_layernorm.weight"])
            layer.qkv.weight.copy_(fused(".weight", projections).t())
            assert layer.qkv.bias is not None, "queries, keys and values have one"
            layer.qkv.bias.copy_(fused(".bias", projections))
            layer.output.weight.copy_(tensors[prefix + "self_attn.o_proj.weight"].t())
            layer.ffn_norm.copy_(tensors[prefix + "post_attention_layernorm.weight"])
            layer.gate_up.weight.copy_(fused(".weight", ("mlp.gate_proj", "mlp.up_proj")).t())
            layer.down.weight.copy_(tensors[prefix + "mlp.down_proj.weight"].t())
        self.norm.copy_(tensors["model.norm.weight"])
        if self.head is not self.embedding:
            self.head.copy_(tensors["lm_head.weight"])


@dataclass(slots=True)
class Buffers:
    """Activations of one step; views of the largest step's."""

    residual: Tensor
    hidden: Tensor
    delta: Tensor
    qkv: Tensor
    mixed: Tensor
    gate_up: Tensor
    gated: Tensor

    @classmethod
    def of(cls, rows: int, shape: ModelShape, empty: "Allocator") -> "Buffers":
        """Return those of a step of so many rows."""
        hidden, query = shape.hidden_size, shape.num_heads * shape.head_size
        widths = (hidden, hidden, hidden, shape.qkv_size, query, 2 * shape.ffn_size, shape.ffn_size)
        return cls(*(empty(rows, width) for width in widths))

    def first(self, rows: int) -> "Buffers":
        """Return views of so many rows."""
        parts = (self.residual, self.hidden, self.delta, self.qkv, self.mixed, self.gate_up, self.gated)
        return Buffers(*(part[:rows] for part in parts))


class Common:
    """What decoders have in common that take turns on one core and stand for one core each: activations and weights.

    A real instance's weights stay in its core's caches from step to step. Those of several that take turns, each with
    weights of its own, push each other out: with 16 of the built-in model a step took up to 1.9 times as long.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, ModelShape], Buffers] = {}
        self._weights: WeakValueDictionary[int, Weights] = WeakValueDictionary()

    def buffers(self, rows: int, shape: ModelShape, empty: "Allocator") -> Buffers:
        """Return activations for steps of so many rows."""
        if (rows, shape) not in self._buffers:
            self._buffers[rows, shape] = Buffers.of(rows, shape, empty)
        return self._buffers[rows, shape]

    def weights(self, tensors: Mapping[str, Tensor], like: Weights) -> Weights:
        """Return where these very tensors are copied to, by every decoder that loads them: it takes each its time."""
        found = self._weights.get(id(tensors))
        if found is None:
            found = self._weights[id(tensors)] = like.another()
            found.source = tensors
        return found


class Allocator:
    """Makes zeroed tensors of one device and type, turning exhausted memory into an EngineError."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    def __call__(self, *size: int) -> Tensor:
        """Return a zeroed tensor; raises EngineError."""
        try:
            return torch.zeros(size, device=self._device, dtype=self._dtype)
        except (RuntimeError, MemoryError) as error:
            raise EngineError(f"no memory for a tensor of {size} on {self._device}: {error}") from error
