"""Every error the product raises on purpose.

SestinaError
  UserError            exit code 2, nothing was started or written
    ConfigError        a key of the configuration, or two that contradict each other
      AbsentError      what a key names is not on this machine
    DataError          a prompt file or one of its lines
    ModelError         a checkpoint directory: missing, truncated or inconsistent
    RunDirError        the run directory cannot be used
  RunError             exit code 1, the run was under way
    DeadlineError      something waited for did not come in time
    EngineError        an engine was asked for what it must refuse
    WeightsError       an update arrived damaged, out of order or not at all
    MismatchError      rollout and trainer disagree about the policy
    RewardError        reward workers cannot be started (rewards/outcome.py)
"""


class SestinaError(Exception):
    """Root of the tree; `exit_code` is what a command ends with."""

    exit_code = 1


class UserError(SestinaError):
    """Something the user wrote cannot be honoured; the message names it and what is allowed."""

    exit_code = 2


class ConfigError(UserError):
    """The configuration is invalid; lists every violation found."""

    def __init__(self, violations: list[str]) -> None:
        self.violations = violations
        count = "1 problem" if len(violations) == 1 else f"{len(violations)} problems"
        super().__init__("\n".join([f"configuration: {count}", *(f"  {v}" for v in violations)]))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[list[str]]]:
        """Be whole in another process too."""
        return type(self), (self.violations,)


class AbsentError(ConfigError):
    """The configuration names what this machine does not have; another one may."""


class DataError(UserError):
    """A prompt set cannot be read; names the file, the line and the reason."""


class ModelError(UserError):
    """A model directory is missing a file, truncated, or does not fit its own description."""


class RunDirError(UserError):
    """The run directory is not writable, held by a live run, or of another configuration."""


class RunError(SestinaError):
    """The run failed while it was under way."""


class DeadlineError(RunError):
    """A wait ended without what it waited for."""

    def __init__(self, awaited: str, limit_s: float) -> None:
        super().__init__(f"waited {limit_s:g} s for {awaited}")


class EngineError(RunError):
    """An engine refuses: busy, out of capacity, or without verified weights."""


class WeightsError(RunError):
    """A weight update is damaged, out of order or late."""


class MismatchError(RunError):
    """Rollout and trainer logprobs differ by more than the configured bound."""
