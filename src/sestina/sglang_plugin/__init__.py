"""What Sestina adds to an SGLang server; the only package that imports SGLang, run by SGLang's own Python.

serve.py         starts a server as a child of a rollout rank
standins.py      CPU: stands in for libraries that exist for CUDA alone
attention.py     CPU: decodes a batch at once
sampling.py      any device: draws tokens with the noise of core.noise, as the embedded engine does
interruption.py  any device: what new weights do to requests under way, and to the prefix cache
kept.py          which tokens are drawn over keys and values of older weights
speculation.py   CPU: the algorithm that is asked for where drafts are set
worker.py        its decode step: drafts, a forward pass, verification
rows.py          who runs, as rows of the embedded engine's slot table
passes.py        forward passes over such rows
verifying.py     what goes with a pass from the worker to the attention
pool.py          any device: SGLang's cache over a store that servers share
leaving.py       chunks end when their keys and values are there

SGLang finds `activate` by its entry point (setup.py) in each of its processes. It was written against SUPPORTED, and
touches functions that no version promises to keep.
"""

import os

from sestina.rollout.sglang import ON_CPU
from sestina.rollout.sglang.drafting import ENVIRONMENT
from sestina.rollout.sglang.pool import ENVIRONMENT as POOL


def activate() -> None:
    """Register what a server needs; SGLang calls this before it builds anything."""
    from sestina.sglang_plugin import interruption, sampling  # noqa: PLC0415 - SGLang is only there when it asks

    sampling.register()
    interruption.register()
    if os.environ.get(ON_CPU) == "1":
        from sestina.sglang_plugin import attention  # noqa: PLC0415

        attention.register()
    if ENVIRONMENT in os.environ:
        from sestina.sglang_plugin import speculation  # noqa: PLC0415

        speculation.register()
    if POOL in os.environ:
        from sestina.sglang_plugin import pool  # noqa: PLC0415

        pool.register()
