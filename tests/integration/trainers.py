"""Starts real trainer ranks for tests, and makes what they train on."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2ForCausalLM

from sestina.models.weights import write_model
from sestina.transport.messages import SampleBatch
from sestina.weights.rendezvous import open_store
from tests.conftest import lively_weights, make_shape
from tests.integration.cases import TEMPERATURE

LIMIT_S = 120


@dataclasses.dataclass
class TrainerBench:
    """A folder with a model and batches; `run` trains on them in processes of their own."""

    folder: Path
    shape: object
    runs: int = 0

    def run(self, actions, *, num_ranks=1, algorithm=None, **trainer):
        """Carry out the actions on every rank; returns what the first rank saw."""
        self.runs += 1
        store = open_store("127.0.0.1", LIMIT_S)
        case = {
            "name": f"run{self.runs}",
            "port": store.port,
            "trainer": {"num_ranks": num_ranks, **trainer},
            "algorithm": algorithm or {},
            "actions": actions,
        }
        path = self.folder / f"case{self.runs}.json"
        path.write_text(json.dumps(case))
        command = [sys.executable, "-W", "ignore", "-m", "tests.integration.trainer_rank", str(path)]
        ranks = [
            subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(num_ranks)
        ]
        try:
            errors = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        for rank, error in zip(ranks, errors, strict=True):
            assert rank.returncode == 0, error[-4000:]
        return json.loads((self.folder / f"run{self.runs}.0.json").read_text())

    def tensors(self, name):
        return torch.load(self.folder / name, weights_only=True)


def make_bench(folder, *, batches=3, **shape):
    """A model of four layers, and batches whose logprobs are near the model's own: ratios on both sides of the clip."""
    model_shape = make_shape(vocab_size=64, num_layers=4, **shape)
    write_model(folder / "model", model_shape, lively_weights(model_shape).items())
    model = Qwen2ForCausalLM.from_pretrained(folder / "model").double()
    for number in range(batches):
        np.savez(folder / f"batch{number}.npz", **as_arrays(make_batch(model, number)))
    return TrainerBench(folder, model_shape)


def as_arrays(batch):
    fields = {name: getattr(batch, name) for name in batch.__struct_fields__}
    return {name: array for name, array in fields.items() if array is not None}


def make_batch(model, seed, groups=8, samples=4):
    rng = np.random.default_rng(seed)
    prompts, responses, tokens, logprobs = [], [], [], []
    for _ in range(groups):
        prompt = rng.integers(3, 64, rng.integers(1, 30))
        for _ in range(samples):
            response = rng.integers(3, 64, rng.integers(1, 60))
            sequence = np.concatenate([prompt, response])
            exact = sequence_logprobs(model, sequence)[len(prompt) - 1 :]
            prompts.append(len(prompt))
            responses.append(len(response))
            tokens.append(sequence)
            logprobs.append(exact.detach().numpy() + rng.normal(0, 0.3, len(response)))
    rewards = rng.integers(0, 2, groups * samples).astype(np.float32)
    rewards[:samples] = 1.0
    rewards[samples + 1] = np.nan
    return SampleBatch(
        groups=np.repeat(np.arange(groups), samples).astype(np.int32),
        prompt_lengths=np.array(prompts, np.int32),
        response_lengths=np.array(responses, np.int32),
        tokens=np.concatenate(tokens).astype(np.int32),
        logprobs=np.concatenate(logprobs).astype(np.float32),
        rewards=rewards,
    )


def sequence_logprobs(model, sequence):
    """[len - 1] float64 log-probabilities of each next token under the dense model."""
    tokens = torch.as_tensor(sequence, dtype=torch.long)
    logits = model(tokens[None]).logits[0, :-1] / TEMPERATURE
    return logits.log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
