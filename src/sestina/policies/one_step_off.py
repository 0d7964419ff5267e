"""Which steps may begin while a step trains (RhymeRL, section 3: the one-step pipeline).

A batch begins with the trainer's version of that moment, and at most two are not trained on: the one that the trainer
takes next and the one after. So a batch is trained on by weights that are at most one version older than its own.
"""


class OneStepOff:
    """Counts steps; where batches stream, one begins before all of the last has been rolled out.

    Example:
        >>> pipeline = OneStepOff(steps=3, trained=0, streaming=True)
        >>> pipeline.due(version=0), pipeline.due(version=0), pipeline.due(version=1)
        ([1, 2], [], [3])
    """

    def __init__(self, *, steps: int, trained: int, streaming: bool) -> None:
        self._steps = steps
        self._streaming = streaming
        self._begun = self._rolled_out = trained

    def rolled_out(self) -> None:
        """A batch is complete."""
        self._rolled_out += 1

    def due(self, version: int) -> list[int]:
        """Return the steps that begin now, the trainer's weights being of `version`; they count as begun."""
        steps: list[int] = []
        while self._begun < min(self._steps, version + 2) and (self._streaming or self._begun == self._rolled_out):
            self._begun += 1
            steps.append(self._begun)
        return steps
