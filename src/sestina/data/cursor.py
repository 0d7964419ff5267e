"""The order in which prompts are drawn: a new permutation each epoch, from a seed, resumable at any prompt."""

from dataclasses import dataclass

from sestina.core.noise import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorState:
    """Everything a checkpoint keeps of a cursor."""

    seed: int
    num_prompts: int
    drawn: int
    """Prompts drawn since the run began, over all epochs."""


class Cursor:
    """Endless walk over `num_prompts` indices, each once per epoch.

    The permutation of an epoch sorts the indices by a counter-based key, so it depends on (seed, epoch) alone and
    never changes with a library's version.

    Example:
        >>> cursor = Cursor(seed=1, num_prompts=3)
        >>> sorted(cursor.draw(3))
        [0, 1, 2]
        >>> cursor.epoch
        1
    """

    def __init__(self, *, seed: int, num_prompts: int, drawn: int = 0) -> None:
        self._seed = seed
        self._num_prompts = num_prompts
        self._drawn = drawn
        self._order: tuple[int, list[int]] = (-1, [])

    @property
    def drawn(self) -> int:
        """Prompts drawn so far; also the number of the next group."""
        return self._drawn

    @property
    def epoch(self) -> int:
        """Complete passes so far."""
        return self._drawn // self._num_prompts

    def draw(self, count: int) -> list[int]:
        """Return the next `count` indices and move past them."""
        indices = [self.at(self._drawn + i) for i in range(count)]
        self._drawn += count
        return indices

    def state(self) -> CursorState:
        """Return what `restore` needs."""
        return CursorState(seed=self._seed, num_prompts=self._num_prompts, drawn=self._drawn)

    @classmethod
    def restore(cls, state: CursorState) -> "Cursor":
        """Return a cursor that draws what the saved one would have drawn next."""
        return cls(seed=state.seed, num_prompts=state.num_prompts, drawn=state.drawn)

    def at(self, position: int) -> int:
        """Return the index that is drawn at a position, wherever the walk is; `drawn` counts positions."""
        epoch, offset = divmod(position, self._num_prompts)
        if self._order[0] != epoch:
            keys = [derive(self._seed, epoch, index) for index in range(self._num_prompts)]
            self._order = (epoch, sorted(range(self._num_prompts), key=keys.__getitem__))
        return self._order[1][offset]
