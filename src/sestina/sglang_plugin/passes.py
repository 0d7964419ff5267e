"""Forward passes of a server's model over the rows of the embedded engine's steps."""

# pyright: reportMissingImports=false

import numpy as np
import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from torch import Tensor

from sestina.rollout.step import Step, moves
from sestina.rollout.verify import Verified
from sestina.sglang_plugin.rows import Rows
from sestina.sglang_plugin.sampling import draw_rows
from sestina.sglang_plugin.verifying import VerifyInput


class Passes:
    """Of one server's process."""

    def __init__(self, target_worker) -> None:
        self._worker = target_worker
        self._runner = target_worker.model_runner
        self._slots, _ = target_worker.get_memory_pool()

    def run(self, batch, step: Step, rows: Rows) -> LogitsProcessorOutput:
        """Return the logits of a step's rows, and keep their keys and values; mutates `batch`."""
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = torch.from_numpy(rows.table.tokens[step.slots, step.cells].astype(np.int64))
        batch.out_cache_loc = self._cells(rows, step.slots, step.cells)
        batch.spec_info = VerifyInput(
            positions=torch.from_numpy(step.positions.astype(np.int64)),
            rows=torch.from_numpy(step.rows.astype(np.int64)),
            branches=step.branches,
        )
        return self._worker.forward_batch_generation(batch, is_verify=True).logits_output

    def measure(self, num_rows: int) -> None:
        """Do a pass of so many rows that belong to nobody: SGLang keeps slot 0 and request 0 for such."""
        nobody = torch.zeros(1, dtype=torch.int64)
        place = torch.arange(num_rows)
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=1,
            input_ids=torch.zeros_like(place),
            req_pool_indices=nobody,
            seq_lens=nobody,
            seq_lens_cpu=nobody,
            seq_lens_sum=0,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            out_cache_loc=torch.zeros_like(place),
            positions=place,
            spec_info=VerifyInput(positions=place, rows=nobody + num_rows),
        )
        translator = self._runner.kv_index_translator
        translator.own_plan(forward_batch).bind(forward_batch, translator)
        logits = self._runner.forward(forward_batch).logits_output.next_token_logits
        free = torch.zeros(num_rows, 3, dtype=torch.int64)
        draw_rows(logits, temperatures=torch.ones(num_rows, 1), greedy=place < 0, carried=free, positions=place)

    def keep_path(self, step: Step, verified: Verified, rows: Rows) -> None:
        """Move keys and values of what was accepted out of a tree to where they belong."""
        slots, cells, targets = moves(step, verified)
        source, target = self._cells(rows, slots, cells), self._cells(rows, slots, targets)
        self._runner.token_to_kv_pool.move_kv_cache(target, source)

    def _cells(self, rows: Rows, slots, cells) -> Tensor:
        """Return where the cache keeps these cells of these rows."""
        return self._slots.req_to_token[rows.pool[slots], torch.from_numpy(cells)].long()
