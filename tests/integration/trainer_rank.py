"""One trainer rank as a process of its own: builds a Trainer, does what the case says, writes what it saw.

python -m tests.integration.trainer_rank CASE.json RANK
"""

import json
import sys
from pathlib import Path

import torch

from sestina.algorithms.config import GRPOConfig
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.trainer.backend import open_backend
from sestina.trainer.config import OptimizerConfig, TrainerConfig
from sestina.trainer.groups import close_groups, open_groups
from sestina.trainer.policy import PolicyTrainer
from sestina.trainer.trainer import Trainer
from sestina.transport.messages import SampleBatch
from sestina.weights.rendezvous import connect_store
from tests.integration.cases import ALGORITHM, OPTIMIZER, TEMPERATURE, TRAINER, load_batch


def write_gradients(trainer: Trainer, policy: PolicyTrainer, batch: SampleBatch, path: Path) -> None:
    """Save the gradient of one batch under Hugging Face names, by putting it in the parameters' place."""
    trainer._optimizer.step = lambda: (True, 1.0, None)
    policy.train(batch, temperature=TEMPERATURE)
    for parameter in trainer.model.parameters():
        parameter.data.copy_(parameter.main_grad)
    torch.save(dict(trainer.export()), path)


def main() -> None:
    case, rank = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    here = Path(sys.argv[1]).parent
    config = TrainerConfig(**{**TRAINER, **case["trainer"]}, optimizer=OptimizerConfig(**OPTIMIZER))
    backend = open_backend("cpu", 0)
    open_groups(config, backend, connect_store("127.0.0.1", case["port"], 60), rank=rank, seed=1, limit_s=60)
    shape = read_shape(here / "model")
    algorithm = GRPOConfig(**{**ALGORITHM, **case["algorithm"]})
    trainer = Trainer(config, shape, backend, read_weights(here / "model", shape))
    policy = PolicyTrainer(trainer, algorithm, max_tokens=1000)
    seen = []
    for action, argument in case["actions"]:
        match action:
            case "train":
                seen.append(policy.train(load_batch(here / argument), temperature=TEMPERATURE))
            case "export":
                weights = dict(trainer.export())
                if rank == 0:
                    torch.save(weights, here / argument)
            case "gradients":
                write_gradients(trainer, policy, load_batch(here / "batch0.npz"), here / f"{argument}.{rank}")
            case "save":
                (here / argument).mkdir(exist_ok=True)
                trainer.save(here / argument, 7)
            case "load":
                seen.append({"version": trainer.load(here / argument)})
    (here / f"{case['name']}.{rank}.json").write_text(json.dumps(seen))
    close_groups()


if __name__ == "__main__":
    main()
