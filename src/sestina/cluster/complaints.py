"""What srun says when a step cannot go on."""

import re

TASK = re.compile(r"srun: error: (?P<node>\S+): tasks? (?P<task>\d+)[^:]*: (?P<how>.+)")
ABORT, ENDED = "srun: Job step aborted", "srun: forcing job termination"


def is_end(line: str) -> bool:
    """Whether a line of srun's means that the step cannot go on."""
    return line.startswith((ABORT, ENDED)) or TASK.match(line) is not None
