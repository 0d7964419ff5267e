"""The process of one SGLang server: how it is called, what it may see of this process's environment, its log."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sestina
from sestina.core.errors import EngineError
from sestina.core.units import Seconds
from sestina.rollout.config import SGLangEngineConfig
from sestina.rollout.sglang import ON_CPU
from sestina.rollout.sglang.drafting import ALGORITHM, ServerDrafts
from sestina.rollout.sglang.pool import ServerPool

SOURCE = Path(sestina.__file__).parent.parent
"""SGLang's Python reads this package from here; nothing is installed beside SGLang."""

FOUND = SOURCE / "sestina/sglang_plugin/found"
"""Where SGLang finds the entry point of sestina.sglang_plugin."""

_NOT_FOR_CHILDREN = ("PMI_", "PMIX_", "SLURM_", "MPI_", "MPICH_", "OMPI_", "HYDRA_", "HYDI_", "MPIR_", "GPMI_")
"""A server that believed itself a rank of this world, or a step of this job, would wait for the others."""

_LOG_LINES = 12

OWN_ARGUMENTS = frozenset(
    {
        *(
            "model-path",
            "model",
            "load-format",
            "skip-tokenizer-init",
            "device",
            "dtype",
            "host",
            "port",
            "dist-init-addr",
        ),
        *("nnodes", "node-rank", "tp-size", "tensor-parallel-size", "attn-dp-size", "dp-size", "data-parallel-size"),
        *("ep-size", "expert-parallel-size", "max-running-requests", "page-size", "max-total-tokens"),
        *("mem-fraction-static", "enable-deterministic-inference"),
        *("speculative-algorithm", "speculative-num-draft-tokens", "speculative-num-steps", "speculative-eagle-topk"),
        *("enable-hierarchical-cache", "enable-hicache", "hicache-host-memory-mode", "hicache-write-policy"),
        *("hicache-io-backend", "hicache-mem-layout", "hicache-storage-backend", "hicache-storage-prefetch-policy"),
        "hicache-storage-backend-extra-config",
    }
)
"""Arguments that come from other keys, or that a rank chooses for its server: nobody else may give them."""


def server_command(
    config: SGLangEngineConfig,
    drafts: ServerDrafts | None,
    model: Path,
    port: int,
    distributed_port: int,
    pool: ServerPool | None = None,
) -> list[str]:
    """Return the call that starts a server without weights, which come with the first update; pure."""
    arguments = {
        "model-path": model,
        "load-format": "dummy",
        "host": "127.0.0.1",
        "port": port,
        "dist-init-addr": f"127.0.0.1:{distributed_port}",
        "device": config.device,
        "dtype": config.dtype,
        "tp-size": config.tensor_parallel,
        "max-running-requests": config.max_running,
        "page-size": config.page_tokens,
        "sampling-backend": "pytorch",
        "log-level": "info",
        "log-level-http": "warning",
    }
    if config.kv_capacity_tokens:
        arguments["max-total-tokens"] = config.kv_capacity_tokens + (drafts.room_tokens(config) if drafts else 0)
    if config.device == "cuda":
        arguments["mem-fraction-static"] = config.memory_fraction
    if config.data_parallel > 1:
        arguments["attn-dp-size"] = config.data_parallel
    if config.expert_parallel > 1:
        arguments["ep-size"] = config.expert_parallel
    if config.device == "cpu":
        arguments["attention-backend"] = "sestina_cpu"
    if drafts:
        arguments |= {
            "speculative-algorithm": ALGORITHM,
            "speculative-num-draft-tokens": drafts.most_tokens + 1,
            "speculative-num-steps": 1,
            "speculative-eagle-topk": 1,
        }
    if pool:
        arguments |= pool.arguments(config)
    flags = ["--skip-tokenizer-init", "--disable-overlap-schedule", "--skip-server-warmup"]
    if config.device == "cpu":
        flags.append("--sleep-on-idle")  # its scheduler would take a whole core from the trainer
    if config.deterministic:
        flags.append("--enable-deterministic-inference")
    if pool:
        flags.append("--enable-hierarchical-cache")
    named = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
    return [str(config.python), "-m", "sestina.sglang_plugin.serve", *named, *flags, *config.extra_args]


def server_environment(
    config: SGLangEngineConfig,
    drafts: ServerDrafts | None,
    environment: Mapping[str, str],
    pool: ServerPool | None = None,
) -> dict[str, str]:
    """Return a server's environment: this one's without what would make it take part in this MPI world; pure."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_NOT_FOR_CHILDREN)}
    fixed = {
        "PYTHONPATH": f"{SOURCE}:{FOUND}",
        "SGLANG_PLUGINS": "sestina",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if config.device == "cpu":
        fixed |= {ON_CPU: "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if drafts:
        fixed |= drafts.to_environment()
    if pool:
        fixed |= pool.to_environment()
    return kept | fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetup:
    """What every server of an engine is made from."""

    config: SGLangEngineConfig
    drafts: ServerDrafts | None
    pool: ServerPool | None
    model: Path
    log: Path


class ServerProcess:
    """A server under way, and its log. Ends with this process."""

    def __init__(self, setup: ServerSetup) -> None:
        config, drafts, pool, log = setup.config, setup.drafts, setup.pool, setup.log
        self.log = log
        self._held = hold_ports(2)
        self.port, distributed_port = (each.getsockname()[1] for each in self._held)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = server_command(config, drafts, setup.model, self.port, distributed_port, pool)
        with log.open("ab") as output:
            output.write(f"\n--- {time.strftime('%F %T')}: {' '.join(command)}\n".encode())
            output.flush()
            try:
                self._process = subprocess.Popen(
                    command,
                    env=server_environment(config, drafts, os.environ, pool),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                self._let_go()
                raise EngineError(f"{config.python}: SGLang's Python cannot be run: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Return where the log is and how it ends."""
        lines = self.log.read_text(errors="replace").rstrip().splitlines()[-_LOG_LINES:]
        return "\n".join([f"the end of {self.log}:", *(f"  {line[:300]}" for line in lines)])

    def kill(self, limit_s: Seconds = 10.0) -> None:
        """End it and every process it has started."""
        with contextlib.suppress(ProcessLookupError):  # the group outlives its first process
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(limit_s)
        self._let_go()

    def _let_go(self) -> None:
        """Let others have its ports."""
        for each in self._held:
            each.close()


def hold_ports(count: int) -> list[socket.socket]:
    """Return sockets at different ports of the loopback interface that no other process is given while they are open.

    A server binds its port a minute after it is called. The sockets do not listen, so it can (SO_REUSEADDR).
    """
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    return held
