"""The model on rounded weights: feed-forward and attention projections are its own, all else it shares.

Embedding, head, norms, biases, activations and KV cache are the model's (EfficientRollout, sections 4 and 5;
algorithms-and-numbers E-D, E-E). What it writes into the cache is provisional: cells behind the known tokens, which
verification writes again before anything reads them.
"""

import torch
from torch import Tensor

from sestina.rollout.fused import DenseLayer, Layer
from sestina.rollout.ops import StepInputs
from sestina.rollout.quantized.choice import choose
from sestina.rollout.quantized.products import Quantized
from sestina.rollout.quantized.rounding import Bits
from sestina.rollout.qwen2 import Qwen2


class QuantizedModel:
    """A model's layers on rounded weights; `kernel` says by which products, and why."""

    @torch.inference_mode()
    def __init__(self, model: Qwen2, bits: Bits, group: int) -> None:
        self._model = model
        choice = choose(model.layers[0].products, bits, group)
        self.kernel = choice.name
        self._products: list[Quantized] = []

        def layer(own: DenseLayer) -> Layer:
            qkv, output, gate_up, down = made = [choice.build(product) for product in own.products]
            self._products += made
            return Layer(own.input_norm, qkv, output, own.ffn_norm, gate_up, down)

        self._layers = [layer(own) for own in model.layers]

    @torch.inference_mode()
    def renew(self) -> None:
        """Round the weights that the model has by now, in place."""
        for product in self._products:
            product.renew()

    def forward(self, inputs: StepInputs) -> Tensor:
        """Return logits [S, V]; writes provisional KV of every row."""
        return self._model.forward(inputs, self._layers)
