"""New weights in the middle of responses: who goes on over keys and values of the old ones, and who finds which cache.

Whatever holds keys and values when the weights change goes on over them, and says so with its tokens: nothing does
after a pause that retracts. The prefix cache is salted with the version: a request that enters the queue, or is in it
when the weights change, finds what these weights have left, and leaves its own there.
"""

# pyright: reportMissingImports=false

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_serving

from sestina.rollout.sglang.reply import KEPT_KV
from sestina.sglang_plugin.kept import Kept


class Interruption:
    """What one scheduler does beside changing its weights."""

    def __init__(self) -> None:
        self._retracted = []

    def pause(self, original, scheduler, call):
        """Note who is retracted by it."""
        before = {request.rid for request in scheduler.waiting_queue}
        original(scheduler, call)
        self._retracted = [request for request in scheduler.waiting_queue if request.rid not in before]

    def change(self, original, scheduler, *args, **kwargs):
        """Tell requests apart by what they hold; drafts of the old weights are forgotten."""
        before = get_serving().weight_version
        original(scheduler, *args, **kwargs)
        if get_serving().weight_version == before:
            return
        for request in self._retracted:
            request.retraction_count -= 1  # that is said by the versions of its tokens
        self._retracted = []
        for request in scheduler.waiting_queue:
            _enter(scheduler, request)
        running = scheduler.collect_inflight_reqs() | ({scheduler.chunked_req} - {None})
        holding = [request for request in running if request.kv.holds_kv]
        for request in holding:
            _kept(request).begin(len(request.output_ids))
        if holding and scheduler.draft_worker:
            scheduler.draft_worker.clear_cache_pool()  # as a flush does


def register() -> None:
    """Hook the functions of SGLang's scheduler that pause, change the version, and queue a request."""
    own = Interruption()
    scheduler = "sglang.srt.managers.scheduler.Scheduler"
    HookRegistry.register(f"{scheduler}.pause_generation", own.pause, HookType.AROUND)
    HookRegistry.register(f"{scheduler}.record_weight_version_change", own.change, HookType.AROUND)
    HookRegistry.register(f"{scheduler}._add_request_to_queue", _enter, HookType.BEFORE)


def _enter(_scheduler, request, **_) -> None:
    """A request without keys and values computes them by the weights that are there."""
    if request.kv.holds_kv:
        return
    request.extra_key = f"v{get_serving().weight_version}"
    if request.customized_info:
        _kept(request).end(len(request.output_ids))


def _kept(request) -> Kept:
    request.customized_info = request.customized_info or {KEPT_KV: Kept()}
    return request.customized_info[KEPT_KV]
