"""The one place that talks to Weights & Biases.

W&B runs a process of its own beside ours, replaces `sys.exit` and `sys.excepthook`, and reports its own errors over
the network, even for an offline run. Here that process ends with the run, the hooks stay the caller's, and only an
online run uses the network.
"""

import os
import secrets
import sys
from pathlib import Path
from typing import Any

from sestina.core.errors import UserError
from sestina.telemetry.config import TelemetryConfig

FINISH_S = 60.0
"""How long the end of an online run may wait for its upload; `wandb sync` can make up for what is missing."""

_WAY_OUT = "set telemetry.wandb=off to go without"


class WandbRun:
    """One run on W&B, continued under the same id when `run_dir` already has one; its files are below run_dir/wandb.

    Raises UserError when W&B does not start. Sets WANDB_CACHE_DIR and WANDB_ERROR_REPORTING unless they are set.
    """

    def __init__(self, run_dir: Path, config: TelemetryConfig, *, resolved: dict[str, Any], name: str) -> None:
        run_dir = run_dir.resolve()
        os.environ.setdefault("WANDB_CACHE_DIR", str(run_dir / "wandb" / "cache"))
        if config.wandb != "online":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = _import(config.wandb)
        self._run = self._start(
            mode=config.wandb,
            project=config.wandb_project,
            group=config.wandb_group,
            name=name,
            id=_run_id(run_dir / "wandb_id"),
            dir=run_dir,
            config=resolved,
        )
        # An axis of our own: W&B refuses its own step going back, as it does after a resume.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log the values of a step."""
        self._run.log({"step": step, **values})

    def close(self, *, failed: bool) -> None:
        """Mark the run finished or failed and end the W&B process."""
        self._run.finish(exit_code=int(failed))
        self._wandb.teardown()

    def _start(self, *, mode: str, **settings: Any) -> Any:  # noqa: ANN401 - wandb's own types
        exit_hooks = sys.exit, sys.excepthook
        quiet = self._wandb.Settings(silent=True, console="off", finish_timeout=FINISH_S)
        try:
            return self._wandb.init(mode=mode, resume="allow", settings=quiet, **settings)
        except (self._wandb.Error, OSError, ValueError) as error:
            self._wandb.teardown()
            raise UserError(f"telemetry.wandb={mode}: W&B did not start: {error}; {_WAY_OUT}") from error
        finally:
            sys.exit, sys.excepthook = exit_hooks


def _import(mode: str) -> Any:  # noqa: ANN401 - the module
    try:
        import wandb  # noqa: PLC0415 - takes a second, and a run without W&B needs none of it
    except ImportError as error:
        raise UserError(f"telemetry.wandb={mode}: cannot import wandb: {error}; {_WAY_OUT}") from None
    return wandb


def _run_id(path: Path) -> str:
    if not path.exists():
        path.write_text(f"{secrets.token_hex(4)}\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()
