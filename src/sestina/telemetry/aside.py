"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Give a path to write to; it takes the place of `path` at the end, or is removed when the block raises.

    Readers see the former file or the finished one. One writer at a time: the path aside is always the same.
    """
    aside = path.with_name(f".{path.name}.aside")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
