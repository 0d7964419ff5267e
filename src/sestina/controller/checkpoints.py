"""Checkpoints of a run: complete or absent, written aside and then renamed."""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sestina.config.resolved import write_resolved
from sestina.config.run import RunConfig
from sestina.controller.feed import FeedState
from sestina.controller.histories import Histories
from sestina.controller.ranks import Ranks
from sestina.controller.run_dir import CONFIG, HISTORY, RunDir
from sestina.controller.stream_state import StreamState, write_stream
from sestina.core.errors import RunDirError
from sestina.core.units import Version
from sestina.models.tokenizer import FILES as TOKENIZER_FILES
from sestina.transport.messages import CheckpointDone, LoadCheckpoint, SaveCheckpoint

_STATE, _MODEL = "controller.json", "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What the controller continues from; sampling noise needs no state (core.noise)."""

    step: int
    version: Version
    feed: FeedState


class Checkpoints:
    """Saves and loads, together with the trainer."""

    def __init__(self, run_dir: RunDir, ranks: Ranks, config: RunConfig, histories: Histories | None) -> None:
        self._run_dir = run_dir
        self._ranks = ranks
        self._config = config
        self._histories = histories

    async def save(self, state: ControllerState, stream: StreamState | None) -> Path:
        """Write the checkpoint of a step and remove those too many; returns where it lies."""
        final = self._run_dir.checkpoint(state.step)
        for left_over in final.parent.glob("*.partial"):
            shutil.rmtree(left_over)
        aside = final.with_suffix(".partial")
        (aside / "trainer").mkdir(parents=True)
        await self._ask(SaveCheckpoint(directory=str(aside.absolute())))
        for name in TOKENIZER_FILES:
            if (self._config.model.path / name).exists():
                shutil.copyfile(self._config.model.path / name, aside / _MODEL / name)
        if self._histories is not None:
            await self._histories.save(aside / HISTORY, self._config.deadlines.checkpoint_s)
        write_resolved(self._config, aside / CONFIG)
        (aside / _STATE).write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        if stream is not None:
            await asyncio.to_thread(write_stream, aside, stream)
        await asyncio.to_thread(_sync, aside)  # responses may be under way meanwhile
        if final.exists():
            _remove(final)
        aside.rename(final)
        for old in self._run_dir.checkpoints()[: -self._config.run.keep_checkpoints]:
            _remove(old)
        return final

    async def load(self, directory: Path, version: Version) -> None:
        """Make the trainer continue from a checkpoint; raises RunDirError when that is of another version."""
        done = await self._ask(LoadCheckpoint(directory=str(directory.absolute())))
        if done.version != version:
            raise RunDirError(f"{directory}: the trainer's version is {done.version}, the controller's {version}")

    async def _ask(self, order: SaveCheckpoint | LoadCheckpoint) -> CheckpointDone:
        verb = "save" if isinstance(order, SaveCheckpoint) else "load"
        limit_s = self._config.deadlines.checkpoint_s
        return await self._ranks.ask(
            self._ranks.first_trainer, order, CheckpointDone, limit_s, f"to {verb} {order.directory}"
        )


def read_state(directory: Path) -> ControllerState:
    """Return the controller's part of a checkpoint; raises RunDirError when it is malformed."""
    path = directory / _STATE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ControllerState)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDirError(f"{path}: not a checkpoint's state: {error}") from None


def model_of(checkpoint: Path) -> Path:
    """Return where the model of a checkpoint lies, as everyone reads it."""
    return checkpoint / _MODEL


def _sync(directory: Path) -> None:
    """Bring every file to the disk, so that a complete name never stands for incomplete contents."""
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint that is never seen half removed."""
    aside = checkpoint.with_suffix(".removed.partial")
    checkpoint.rename(aside)
    shutil.rmtree(aside)
