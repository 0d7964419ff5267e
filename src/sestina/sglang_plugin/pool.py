"""The pool in a server: what leaving.py does with what SGLang writes, asks and sends, and a flush that waits for it."""

# pyright: reportMissingImports=false

import os

from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from sestina.rollout.sglang import ON_CPU
from sestina.sglang_plugin.leaving import Leaving, Store, drain
from sestina.sglang_plugin.standins import load_layer, store_layers


def register() -> None:
    """Hook what SGLang writes, asks and sends; on a CPU, lend it the kernels that copy between its caches."""
    store = Store()
    leaving = Leaving(store)
    mooncake = "sglang.srt.mem_cache.storage.mooncake_store.mooncake_store.MooncakeStore"
    HookRegistry.register(f"{mooncake}._batch_exist", store.look, HookType.AROUND)
    HookRegistry.register(f"{mooncake}._put_batch_zero_copy_impl", store.put, HookType.AROUND)
    controller = "sglang.srt.managers.cache_controller.HiCacheController"
    HookRegistry.register(f"{controller}._page_backup_or_log", store.write, HookType.AROUND)
    streamer = "sglang.srt.managers.scheduler_components.output_streamer.SchedulerOutputStreamer"
    HookRegistry.register(f"{streamer}.stream_output", leaving.send, HookType.AROUND)
    cache = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
    HookRegistry.register(f"{cache}.check_hicache_events", leaving.look, HookType.AFTER)
    flush = "sglang.srt.managers.scheduler.Scheduler.flush_cache"
    HookRegistry.register(flush, lambda scheduler, *_, **__: drain(store, scheduler), HookType.BEFORE)
    if os.environ.get(ON_CPU) == "1":
        _lend_kernels()


def _lend_kernels() -> None:
    """SGLang imports them with CUDA alone; nothing is pinned, as nothing copies by DMA."""
    from sglang.srt.mem_cache.pool_host import mha  # noqa: PLC0415

    mha.transfer_kv_per_layer_direct_pf_lf = load_layer
    mha.transfer_kv_all_layer_direct_lf_pf = store_layers
    register = "sglang.srt.mem_cache.pool_host.common._cuda_host_register"
    HookRegistry.register(register, lambda *_, **__: None, HookType.REPLACE)
