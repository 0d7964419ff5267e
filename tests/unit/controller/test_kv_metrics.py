from dataclasses import dataclass, field

import numpy as np
import pytest

from sestina.controller.kv_metrics import kv_pool_metrics
from sestina.controller.observation import Observation
from sestina.telemetry.traces import ChunkRow

PLAIN = ("step", "group", "sample", "chunk", "instance", "budget_tokens", "tokens", "version")
TIMES = ("dispatched_s", "submitted_s", "started_s", "finished_s", "received_s")
COUNTS = ("cached_tokens", "preemptions", "drafted_tokens", "accepted_tokens")


@dataclass
class Chunks:
    chunks: list
    observations: list = field(default_factory=list)


def chunk(source="none", target="none", prefilled=1, **changes):
    row = dict.fromkeys([*PLAIN, *TIMES, *COUNTS], 0) | {"reason": "", "finish": "chunk"} | changes
    return ChunkRow(kv_source=source, kv_target=target, prefilled_tokens=prefilled, **row)


def test_resumed_chunks_are_counted_by_what_became_of_their_keys_and_values():
    samples = [
        Chunks([chunk(target="dram", prefilled=30, kv_moved_bytes=5, kv_s=0.5), chunk("dram", kv_moved_bytes=7)]),
        Chunks([chunk(target="full", prefilled=30), chunk("absent", prefilled=40)]),
        Chunks([chunk(target="dram", kv_evicted=2, kv_demoted=1), chunk("absent", "ssd", 40), chunk("ssd")]),
        Chunks([chunk(target="dram"), chunk("corrupt", prefilled=9), chunk("dearer", prefilled=5)]),
        Chunks([chunk(target="dram"), chunk("dearer", prefilled=1)]),
        Chunks([chunk("absent", prefilled=50)]),
    ]
    metrics = kv_pool_metrics(samples, instances_s=2.0)
    assert {name.removeprefix("perf/kv_pool_"): value for name, value in metrics.items()} == pytest.approx(
        {
            "resumed": 7,
            "moved_bytes": 12,
            "loaded_tokens": 0,
            "hits_dram": 1,
            "hits_ssd": 1,
            "prefilled_again": 4,
            "demoted": 1,
            "evicted": 2,
            "time_share": 0.25,
            "prefilled_again_full": 1,
            "prefilled_again_failed": 0,
            "prefilled_again_absent": 1,
            "prefilled_again_corrupt": 1,
            "prefilled_again_dearer": 1,
        }
    )


def test_where_only_whole_pages_are_kept_a_part_of_one_is_no_second_prefill():
    samples = [
        Chunks([chunk(target="dram", prefilled=30), chunk("dram", prefilled=16, kv_loaded_tokens=64)]),
        Chunks([chunk(target="failed", prefilled=30), chunk("absent", prefilled=17)]),
    ]
    metrics = kv_pool_metrics(samples, instances_s=None, tail_tokens=16)
    assert metrics["perf/kv_pool_resumed"] == 2
    assert metrics["perf/kv_pool_loaded_tokens"] == 64
    assert metrics["perf/kv_pool_prefilled_again"] == metrics["perf/kv_pool_prefilled_again_failed"] == 1
    assert "perf/kv_pool_time_share" not in metrics


def test_what_was_observed_is_no_second_prefill():
    seen = Observation(after=1, tokens=np.arange(8, dtype=np.int32), waited_s=0.1, cut=False)
    chunks = [chunk(target="dram", prefilled=30), chunk("dram", prefilled=9), chunk("dram", prefilled=9)]
    metrics = kv_pool_metrics([Chunks(chunks, [seen])], instances_s=1.0)
    assert (metrics["perf/kv_pool_resumed"], metrics["perf/kv_pool_prefilled_again"]) == (2, 1)
