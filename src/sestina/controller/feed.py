"""What is offered to the rollout: the next prompts of the data, or the held-out ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sestina.config.run import RunConfig
from sestina.controller.materials import Materials
from sestina.controller.offer import Offer
from sestina.controller.recorded import RecordedLength, RecordedLengths
from sestina.core.errors import RunDirError
from sestina.core.ids import EVAL_GROUPS, GroupId
from sestina.core.noise import derive
from sestina.data.cursor import Cursor, CursorState
from sestina.data.prompt import Prompt
from sestina.data.prompt_set import digest
from sestina.rewards.environments.config import NoEnvironmentConfig

_PROMPT_ORDER = 1
"""Name, below the run's seed, of the key that orders prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """Everything a checkpoint keeps of a feed."""

    cursor: CursorState
    digest: str
    """Of the prompt set (data.prompt_set)."""


class Feed:
    """The run's place in its prompts."""

    def __init__(self, config: RunConfig, materials: Materials) -> None:
        self._config = config
        self._materials = materials
        self._digest = digest(materials.prompts)
        self._cursor = Cursor(seed=derive(config.seed, _PROMPT_ORDER), num_prompts=len(materials.prompts))
        self._before = self._cursor.state()

    def draw(self, step: int) -> Offer:
        """Return the groups of a step and move past them."""
        self._before = self._cursor.state()
        first, count = self._cursor.drawn, self._batch_groups
        self._cursor.draw(count)
        return self._training(step, range(first, first + count))

    def of_step(self, step: int) -> Offer:
        """Return the groups that synchronous training has in a step, drawn before or not, and be past them."""
        end = step * self._batch_groups
        self._cursor.draw(max(0, end - self._cursor.drawn))
        return self._training(step, range(end - self._batch_groups, end))

    @property
    def known_lengths(self) -> Mapping[str, tuple[int, ...]]:
        """Of what prompts were answered in an earlier run."""
        return self._materials.known_lengths

    def draw_group(self) -> Offer:
        """Return the next group alone and move past it."""
        group = self._cursor.drawn
        self._cursor.draw(1)
        return self.group(group)

    def group(self, group: GroupId) -> Offer:
        """Return a group alone, drawn before or not, under the step that synchronous training has it in."""
        return self._training(group // self._batch_groups + 1, [group])

    def put_back(self) -> None:
        """Undo the last `draw`."""
        self._cursor = Cursor.restore(self._before)

    def held_out(self, step: int) -> Offer:
        """Return every held-out prompt once."""
        groups = tuple((EVAL_GROUPS + i, prompt) for i, prompt in enumerate(self._materials.eval_prompts))
        return self._offer(step, groups, 1, self._config.eval.temperature)

    def state(self) -> FeedState:
        """Return what `restore` needs."""
        return FeedState(cursor=self._cursor.state(), digest=self._digest)

    def restore(self, state: FeedState, checkpoint: Path) -> None:
        """Go on from a checkpoint; raises RunDirError when it was made with other prompts."""
        if state.digest != self._digest:
            raise RunDirError(
                f"{checkpoint}: made with another prompt set, of {state.cursor.num_prompts} prompts and digest "
                f"{state.digest}; this one holds {len(self._materials.prompts)}, its digest is {self._digest}"
            )
        self._cursor = Cursor.restore(state.cursor)

    @property
    def _batch_groups(self) -> int:
        return self._config.algorithm.batch_size // self._config.algorithm.group_size

    def _training(self, step: int, numbers: Sequence[GroupId]) -> Offer:
        groups = tuple((group, self._materials.prompts[self._cursor.at(group)]) for group in numbers)
        return self._offer(step, groups, self._config.algorithm.group_size, self._config.rollout.temperature)

    def _offer(self, step: int, groups: tuple[tuple[int, Prompt], ...], num_samples: int, temperature: float) -> Offer:
        max_new_tokens, environment = self._config.rollout.max_new_tokens, self._config.environment

        def of(recorded: RecordedLengths) -> tuple[tuple[RecordedLength, ...], ...]:
            return tuple(recorded.of(step, group, num_samples, len(prompt.tokens)) for group, prompt in groups)

        return Offer(
            step=step,
            groups=groups,
            lengths=tuple(tuple(length.tokens for length in of_group) for of_group in of(self._materials.lengths)),
            forced=of(self._materials.forced),
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            turn_token=self._materials.turn_token,
            max_turns=1 if isinstance(environment, NoEnvironmentConfig) else environment.max_turns,
        )
