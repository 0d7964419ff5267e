"""The suffix index against ArcticInference's, on responses that share phrases: one pinned core, depth 24, one run.

Where the peer is not installed its rows are missing, and a line says so.
"""

import os

from sestina.bench.drafting.acceptance import acceptance
from sestina.bench.drafting.batches import appends, batch_of_64
from sestina.bench.drafting.cold import cold
from sestina.bench.drafting.growth import growth
from sestina.bench.drafting.peer import load_peer, peer_version
from sestina.bench.drafting.store import make_store
from sestina.bench.drafting.workload import Workload
from sestina.bench.turns import Say
from sestina.telemetry.measurements import Figure

SEEDS = (1, 2)
NUM_GROUPS = 6
STORE_TOKENS = 1_000_000
LIVE, OWN_TOKENS = 1000, 200


def measure(say: Say) -> list[Figure]:
    """Take every figure, on one core from here on."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    peer = load_peer()
    if peer:
        say(f"peer: arctic-inference {peer_version()}")
    else:
        say("no peer: arctic_inference cannot be imported here, so no row compares with it")
    workloads = {seed: Workload(seed) for seed in SEEDS}
    figures = cold(make_store(workloads[1], STORE_TOKENS, LIVE, OWN_TOKENS), peer, say)
    for seed, workload in workloads.items():
        groups = [workload.group(number) for number in range(NUM_GROUPS)]
        figures += acceptance(seed, groups, peer, say)
        if seed == SEEDS[0]:
            figures += batch_of_64(groups, peer, say)
            figures += appends(groups, peer, say)
    return figures + growth(workloads[1], say)
