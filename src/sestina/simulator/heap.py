"""Python's collector kept off what an emulation has set up.

All instances of an emulation live in one process, and the collector walks the heaps of all of them inside whichever
step happens to set it off: a tenth of a second and more, on the clock of one instance.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def settled_heap() -> Iterator[None]:
    """Keep the collector off all that is there when it is entered; what comes later is collected as ever."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
