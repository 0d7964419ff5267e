"""The speculative algorithm that SGLang is asked for where drafts are set; its worker is DraftingWorker."""

# pyright: reportMissingImports=false

import msgspec
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sestina.rollout.sglang.counted import FIELD
from sestina.rollout.sglang.drafting import ALGORITHM


class SuffixDrafts(CustomSpecAlgo):
    """Drafts are looked up: there is no drafting model, and none of its state."""

    def has_draft_kv(self) -> bool:
        """Drafts are verified where their keys and values stay."""
        return False

    # SGLang asks algorithms of its own for these three, and has forgotten them in the class for others'.

    def carries_draft_hidden_states(self) -> bool:
        """No model, no hidden states."""
        return False

    def need_topk(self) -> bool:
        """No model, no distribution."""
        return False

    def create_future_map(self, *args, **kwargs):
        """As SGLang's own algorithms."""
        return SpeculativeAlgorithm.create_future_map(self, *args, **kwargs)


def register() -> None:
    """Let `--speculative-algorithm` name it, and each scheduler say what it has counted of drafts."""
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.get_internal_state", _tell, HookType.AFTER)

    @SpeculativeAlgorithm.register(ALGORITHM, supports_overlap=False, spec_class=SuffixDrafts)
    def _worker(_server_args):
        from sestina.sglang_plugin.worker import DraftingWorker  # noqa: PLC0415 - only the scheduler's process has one

        return DraftingWorker


def _tell(reply, scheduler, *_):
    reply.internal_state[FIELD] = msgspec.to_builtins(scheduler.draft_worker.counted())
    return reply
