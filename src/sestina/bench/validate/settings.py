"""What is predicted, and what predictions may be made from: none of the former is among the latter."""

from dataclasses import dataclass, replace
from typing import TypeAlias

Drafts: TypeAlias = tuple[str, int] | None
"""Source and length of drafts."""

BASE = (
    "+exp=quickstart",
    "run.steps=2",
    "run.checkpoint_every=0",
    "eval.every=0",
    'telemetry.wandb="off"',
)
ROWS, ROWS_FOR_ALL = 256, 1024
"""Of a step: the built-in task's, and as many as all drafts need, which a simulation cuts by itself."""
WIDE, TIGHT = 16384, 4096
"""Tokens of keys and values: of all that run, and of some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One configuration of the built-in task."""

    scheduler: str
    instances: int
    chunk_tokens: int = 64
    kv_tokens: int = WIDE
    drafts: Drafts = None
    step_tokens: int = ROWS
    """Of one forward pass."""

    @property
    def name(self) -> str:
        """For people."""
        chunks = "" if self.scheduler == "group" else f", chunks of {self.chunk_tokens}"
        kv = "" if self.kv_tokens == WIDE else f", KV of {self.kv_tokens}"
        drafts = f", {self.drafts[0]} drafts of {self.drafts[1]}" if self.drafts else ""
        return f"{self.scheduler}, {self.instances} instances{chunks}{kv}{drafts}"

    @property
    def without_drafts(self) -> "Setting":
        """The same without drafts."""
        return replace(self, drafts=None)

    @property
    def overrides(self) -> tuple[str, ...]:
        """On the command line."""
        source, length = self.drafts or ("none", 8)
        return (
            f"rollout.scheduler={self.scheduler}",
            f"rollout.num_instances={self.instances}",
            f"rollout.chunk_tokens={self.chunk_tokens}",
            f"rollout.engine.kv_capacity_tokens={self.kv_tokens}",
            f"rollout.engine.max_step_tokens={self.step_tokens}",
            f"draft={source}",
            "draft.length=fixed",
            "draft.guard=false",
            f"draft.max_tokens={length}",
        )


SETTINGS = (
    Setting(scheduler="group", instances=2),
    Setting(scheduler="group", instances=3),
    Setting(scheduler="group", instances=3, kv_tokens=TIGHT),
    Setting(scheduler="divided", instances=1),
    Setting(scheduler="divided", instances=2, chunk_tokens=32),
    Setting(scheduler="divided", instances=3),
    Setting(scheduler="divided", instances=3, chunk_tokens=16),
    Setting(scheduler="divided", instances=3, kv_tokens=TIGHT),
    Setting(scheduler="context", instances=3),
    Setting(scheduler="context", instances=4, chunk_tokens=32),
    Setting(scheduler="divided", instances=3, drafts=("self", 4)),
    Setting(scheduler="context", instances=3, drafts=("self", 4)),
    Setting(scheduler="group", instances=3, drafts=("grouped", 4)),
    Setting(scheduler="divided", instances=3, drafts=("grouped", 4)),
)


def recording_of(setting: Setting) -> Setting:
    """Return what a setting's pace is learnt from: a run of whole responses for those, of chunks for all others.

    Such runs say what steps take in a run, where between them more is done the more often chunks end.
    """
    if setting.scheduler == "group":
        return Setting(scheduler="group", instances=4, drafts=setting.drafts)
    return Setting(scheduler="divided", instances=3, chunk_tokens=128, drafts=setting.drafts)


def drafting_of(setting: Setting) -> Setting:
    """Return what a setting's drafts are learnt from: a run of chunks, which say what they yield on the way.

    Drafts of the group are of siblings on the same instance; where a group stays together, one instance has all.
    """
    together = setting.scheduler == "group"
    return Setting(
        scheduler="divided",
        instances=1 if together else 3,
        chunk_tokens=128,
        drafts=setting.drafts,
        step_tokens=ROWS_FOR_ALL,
    )
