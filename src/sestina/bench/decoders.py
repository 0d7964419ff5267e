"""The embedded engine and transformers' `generate`, both from one checkpoint directory, behind one Protocol."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from transformers import GenerationConfig, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from sestina.core.errors import RunError
from sestina.core.ids import RequestId
from sestina.core.records import ChunkRequest
from sestina.core.units import TokenArray
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.config import TorchEngineConfig
from sestina.rollout.torch_engine import TorchEngine

NO_TOKEN = -1
"""A stop token that is never drawn."""

MAX_STEP_TOKENS = 256
"""As in conf/rollout/divided.yaml."""


class Decoder(Protocol):
    """Continues prompts by a fixed number of tokens."""

    def __call__(self, prompts: TokenArray, temperature: float) -> TokenArray:
        """Return the tokens [B, N] that follow prompts [B, P]; temperature 0 takes the most likely ones."""
        ...


def decode(decoder: Decoder, prompts: TokenArray, temperature: float, *, new_tokens: int) -> TokenArray:
    """Return what the decoder says; raises RunError when that is not `new_tokens` for each prompt."""
    tokens = decoder(prompts, temperature)
    if tokens.shape != (len(prompts), new_tokens):
        asked = f"{new_tokens} tokens for each of {len(prompts)} prompts"
        raise RunError(f"{type(decoder).__name__} returned tokens of shape {tokens.shape}; asked for {asked}")
    return tokens


def common_prefixes(ours: TokenArray, theirs: TokenArray) -> list[int]:
    """Return how many tokens two answers [B, N] share from the start, response by response."""
    # A difference past the end ends the prefix of responses that agree throughout.
    return np.pad(ours != theirs, ((0, 0), (0, 1)), constant_values=True).argmax(axis=1).tolist()


class EngineDecoder:
    """The embedded engine on the CPU in float32, with room for the whole batch."""

    def __init__(self, directory: Path, *, batch: int, prompt_tokens: int, new_tokens: int) -> None:
        shape = read_shape(directory)
        context = prompt_tokens + new_tokens
        config = TorchEngineConfig(
            kind="torch",
            device="cpu",
            dtype="float32",
            kv_capacity_tokens=2 * batch * (context + MAX_STEP_TOKENS),
            max_running=batch,
            max_step_tokens=MAX_STEP_TOKENS,
        )
        self._engine = TorchEngine(config, shape, max_context_tokens=context, seed=1, stop_token=NO_TOKEN)
        self._engine.load_weights(0, read_weights(directory, shape))
        self._new_tokens = new_tokens
        self._batches = 0

    def __call__(self, prompts: TokenArray, temperature: float) -> TokenArray:
        """See `Decoder`."""
        ids = [RequestId(self._batches, sample) for sample in range(len(prompts))]
        self._batches += 1
        for id, prompt in zip(ids, prompts, strict=True):
            self._engine.submit(self._request(id, prompt, temperature))
        found: dict[RequestId, TokenArray] = {}
        while not self._engine.idle:
            found |= {result.id: result.tokens for result in self._engine.step()}
        return np.stack([found[id] for id in ids])

    @property
    def spared_tokens(self) -> int:
        """Prompt tokens that were not computed because a prefix was known."""
        return self._engine.load().cached_tokens

    def _request(self, id: RequestId, prompt: TokenArray, temperature: float) -> ChunkRequest:
        return ChunkRequest(
            id=id,
            prompt=prompt,
            generated=np.zeros(0, np.int32),
            max_tokens=self._new_tokens,
            max_new_tokens=self._new_tokens,
            temperature=temperature,
        )


class GenerateDecoder:
    """transformers' `generate` with its defaults for attention and cache; silences its progress bars."""

    def __init__(self, directory: Path, *, new_tokens: int) -> None:
        disable_progress_bar()
        # Any: pyright does not find `generate` on the class, whose mixins are typed too narrowly.
        self._model: Any = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self._new_tokens = new_tokens

    def __call__(self, prompts: TokenArray, temperature: float) -> TokenArray:
        """See `Decoder`."""
        ids = torch.from_numpy(prompts).long()
        # top_k=0: its default of 50 would be another distribution, and more work.
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        config = GenerationConfig(min_new_tokens=self._new_tokens, max_new_tokens=self._new_tokens, **sampling)
        with torch.inference_mode():
            output = self._model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        return output[:, ids.shape[1] :].numpy().astype(np.int32)
