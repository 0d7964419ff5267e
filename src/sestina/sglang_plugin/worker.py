"""SGLang's decode step with drafts: the embedded engine's rows, drafter and verification around SGLang's forward pass.

A step has a row for every request's last known token and one for each drafted token after it, so a step without drafts
is plain decoding. Each row draws with the noise of its position at its own temperature, and what is drafted is kept
while it is equal to what is drawn. SGLang's own verification, greedy on a CPU, is not asked.
"""

# pyright: reportMissingImports=false

import os
import time

import numpy as np
import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker

from sestina.core.errors import EngineError
from sestina.core.units import LogprobArray, Seconds, TokenArray
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.sglang.counted import Counted
from sestina.rollout.sglang.drafting import ENVIRONMENT, ServerDrafts
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.costs import measure
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.rest import Rest
from sestina.rollout.speculation.speculator import Outcome
from sestina.rollout.speculation.suffix import SuffixSpeculator
from sestina.rollout.step import Step, lay_out
from sestina.rollout.verify import Verified, verify
from sestina.sglang_plugin.passes import Passes
from sestina.sglang_plugin.rows import Rows
from sestina.sglang_plugin.sampling import draw_requests
from sestina.sglang_plugin.verifying import VerifyInput

MOST_MEASURED_ROWS = 256


class DraftingWorker(BaseSpecWorker):
    """What SGLang's scheduler runs in place of its own worker: step after step, on one thread."""

    draft_worker = None

    def __init__(self, server_args, gpu_id, nccl_port, target_worker) -> None:
        super().__init__()
        self._target_worker = target_worker
        self.model_runner = target_worker.model_runner
        self._drafts = drafts = ServerDrafts.from_environment(os.environ[ENVIRONMENT])
        vocab_size = self.model_runner.model_config.vocab_size
        self._num_slots = server_args.max_running_requests
        self._desk = DraftDesk()
        self._speculator = SuffixSpeculator(
            drafts.config, vocab_size=vocab_size, num_slots=self._num_slots, desk=self._desk
        )
        self._rows = Rows(
            num_slots=self._num_slots, max_context_tokens=drafts.max_context_tokens, leave=self._speculator.leave
        )
        self._cost: StepCost | None = None
        self._ended_s: Seconds | None = None
        self._rest = Rest()

    def alloc_memory_pool(self, **_) -> None:
        """Take note of the target's pools, which are there by then."""
        self._passes = Passes(self._target_worker)

    def clear_cache_pool(self) -> None:
        """SGLang has flushed its cache, as it does for new weights: what was said before is forgotten."""
        rows = min(MOST_MEASURED_ROWS, self._num_slots * (self._drafts.most_tokens + 1))
        self._cost = self._cost or measure(self._passes.measure, rows)
        self._rows.forget()
        self._rest.end(self._speculator, self._rows.table)
        self._speculator.begin(self._cost)

    def counted(self) -> Counted:
        """Return what has become of drafts since the start."""
        return Counted(tally=self._desk.tally.told(), counts=dict(self._desk.counts))

    def note_request_finished(self, *, rid: str, natural_stop: bool) -> None:
        """A request has ended, by a stop token or otherwise."""
        self._rows.give_back(rid, stopped=natural_stop)

    def forward_batch_generation(self, batch, on_publish=None, pp_proxy_tensors=None) -> GenerationBatchResult:
        """Do one step; SGLang undoes what this mutates of `batch`."""
        if batch.forward_mode.is_decode():
            return self._decode(batch)
        self._ended_s = None
        return self._prefill(batch)

    def _prefill(self, batch) -> GenerationBatchResult:
        for request in batch.reqs:
            self._rows.give_back(request.rid, stopped=False)  # retracted, and back before the others' next step
        result = self._target_worker.forward_batch_generation(batch, is_verify=True)  # that is: draws nothing
        logits = result.logits_output.next_token_logits
        one = torch.ones(len(batch.reqs), dtype=torch.int64)
        tokens, logprobs = draw_requests(logits, batch.sampling_info, one, batch.seq_lens - 1)
        result.next_token_ids = torch.from_numpy(tokens)
        result.logits_output.next_token_logprobs = torch.from_numpy(logprobs)
        result.new_seq_lens, result.next_draft_input = batch.seq_lens, VerifyInput()
        return result

    def _decode(self, batch) -> GenerationBatchResult:
        # The scheduler's own work between two steps is part of what a step costs.
        began_s = self._ended_s or time.perf_counter()
        if self._cost is None:
            self.clear_cache_pool()  # weights came without a flush
        step = self._plan(batch)
        logits_output = self._passes.run(batch, step, self._rows)
        rows, positions = torch.from_numpy(step.rows).long(), torch.from_numpy(step.positions)
        drawn = draw_requests(logits_output.next_token_logits, batch.sampling_info, rows, positions)
        verified = self._verify(step, *drawn)
        if step.branches is not None:
            self._passes.keep_path(step, verified, self._rows)
        self._ended_s = time.perf_counter()
        self._learn(step, step.drafts and verified, self._ended_s - began_s)
        _count(batch.reqs, step, verified)
        return _result(batch, verified, logits_output)

    def _plan(self, batch) -> Step:
        """Lay the next step out, with the drafts that pay; raises EngineError when SGLang and the rows disagree."""
        table, slots = self._rows.table, self._rows.follow(batch.reqs)
        if (table.computed[slots] != batch.seq_lens_cpu.numpy()).any():
            has, known = batch.seq_lens_cpu.tolist(), table.computed[slots].tolist()
            raise EngineError(f"SGLang has computed {has} tokens, of requests whose rows have {known}")
        drafts = None if self._rest.left else self._propose(table, slots)
        if drafts is not None:
            table.put_drafts(slots, drafts)
        return lay_out(slots, drafts, [], table)

    def _learn(self, step: Step, verified: Verified | None, seconds: Seconds) -> None:
        table = self._rows.table
        if not self._rest.left:
            self._rest.left = self._speculator.learn(table, Outcome(step=step, verified=verified, seconds=seconds))
            return
        self._rest.passed(step.requests, seconds)
        self._rest.tell(self._speculator, table)

    def _propose(self, table: SlotTable, slots: IntArray) -> Drafts | None:
        room = table.limit[slots] - table.length[slots] - 1
        drafts = self._speculator.propose(table, slots, np.minimum(room, self._drafts.most_tokens))
        return drafts if drafts is not None and drafts.counts.any() else None

    def _verify(self, step: Step, tokens: TokenArray, logprobs: LogprobArray) -> Verified:
        """Hold drafts against draws, and write down what is gained."""
        table, slots = self._rows.table, step.requests
        drafts = step.drafts or Drafts(np.zeros((len(slots), 0), np.int32), np.zeros_like(slots))
        room = table.limit[slots] - table.length[slots]
        verified = verify(drafts, tokens, logprobs, room, self._drafts.stop_token)
        table.extend(slots, verified.tokens, verified.logprobs, verified.counts)
        return verified


def _count(requests, step: Step, verified: Verified) -> None:
    """Have SGLang say with each reply what was drafted and what accepted; it counts a step's last token as its own."""
    if step.drafts is None:
        return
    own_too = verified.accepted - (verified.counts - 1)
    for request, drafted, more in zip(requests, step.drafts.counts.tolist(), own_too.tolist(), strict=True):
        request.spec_num_cap_tokens += drafted
        request.spec_num_correct_drafts += more


def _result(batch, verified: Verified, logits_output) -> GenerationBatchResult:
    """Return what the step has come to as SGLang takes it: lines of equal length, and how much of each counts."""
    width = int(verified.counts.max())
    there = torch.arange(width) < torch.from_numpy(verified.counts)[:, None]
    tokens = torch.zeros(there.shape, dtype=torch.int64)
    tokens[there] = torch.from_numpy(verified.tokens).long()
    logprobs = torch.zeros(there.shape)
    logprobs[there] = torch.from_numpy(verified.logprobs)
    logits_output.next_token_logprobs = logprobs
    gained = there.sum(1, dtype=torch.int32)
    return GenerationBatchResult(
        logits_output=logits_output,
        next_token_ids=tokens.flatten(),
        accept_lens=gained,
        new_seq_lens=batch.seq_lens + gained,
        next_draft_input=VerifyInput(),
        speculative_num_draft_tokens=width,
    )
