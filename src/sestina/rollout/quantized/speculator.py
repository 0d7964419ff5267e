"""Drafts by the model itself on rounded weights, in the target's KV cache."""

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sestina.core.records import Finish
from sestina.core.units import Seconds
from sestina.policies.drafting.cost import StepCost
from sestina.rollout.drafts import Drafts, IntArray
from sestina.rollout.job import Job
from sestina.rollout.ops import StepInputs, step_inputs
from sestina.rollout.quantized.model import QuantizedModel
from sestina.rollout.quantized.rejection import Drawn, redraw
from sestina.rollout.slots import SlotTable
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.costs import measure
from sestina.rollout.speculation.decisions import Decisions
from sestina.rollout.speculation.desk import DraftDesk
from sestina.rollout.speculation.host import Host
from sestina.rollout.speculation.sources import Sources
from sestina.rollout.speculation.speculator import Outcome
from sestina.rollout.step import Step, rows_of


class QuantizedSpeculator:
    """Implements `ModelSpeculator`.

    It draws with the noise that the model will draw with, so a draft is accepted as long as both prefer the same token
    (`coupled`), or by rejection sampling.
    """

    def __init__(self, config: DraftConfig, host: Host, desk: DraftDesk | None = None) -> None:
        self._host = host
        self._rejection = config.acceptance == "rejection"
        self._model = QuantizedModel(host.model, config.bits, config.weight_group)
        self._decisions = Decisions(config, host.num_slots)
        self._sources = Sources(config, desk or DraftDesk(), vocab_size=0, num_slots=host.num_slots)
        self._spent_s = 0.0
        self._cost: StepCost | None = None
        self._logits: list[Tensor] = []
        """By place, [requests that draft so far, V] of the last proposal; empty when drafts are coupled."""

    @property
    def kernel(self) -> str:
        """See `ModelSpeculator.kernel`."""
        return self._model.kernel

    def begin(self, cost: StepCost) -> None:
        """See `Speculator.begin`."""
        self._model.renew()
        self._cost = self._cost or self._with_drafter(cost)
        self._decisions.begin(self._cost)
        self._sources.begin()

    def propose(self, table: SlotTable, slots: IntArray, most: IntArray) -> Drafts | None:
        """See `Speculator.propose`; writes provisional KV."""
        began_s = time.perf_counter()
        plan = self._decisions.plan(table, slots, most)
        lengths = plan.lengths.astype(np.int32)
        drafts = self._draft(table, slots, self._host.reserve(lengths)) if plan.speculate else None
        self._spent_s = time.perf_counter() - began_s
        return drafts

    def learn(self, table: SlotTable, outcome: Outcome) -> int:
        """See `Speculator.learn`."""
        self._sources.count(table, outcome, self._decisions.planned, self._spent_s)
        return self._decisions.learn(table, outcome)

    def rested(self, table: SlotTable, slots: IntArray, steps: int, seconds: Seconds) -> None:
        """See `Speculator.rested`."""
        self._sources.count_rest(table, slots, steps, seconds)
        self._decisions.rested(steps)

    def leave(self, job: Job, finish: Finish) -> None:
        """See `Speculator.leave`; nothing is kept of a text."""
        self._sources.leave(job, finish)
        self._decisions.leave(job)

    def draw(self, logits: Tensor, inputs: StepInputs, step: Step) -> tuple[Tensor, Tensor]:
        """See `ModelSpeculator.draw`."""
        tokens, logprobs = self._host.ops.sample(logits, inputs)
        if step.drafts is None or not self._logits:
            return tokens, logprobs
        rows, drawn = self._drawn(step.drafts, inputs)
        warm = drawn.temperature > 0  # without temperature, model and drafter have one token each
        rows, drawn = rows[warm], drawn.only(warm)
        redrawn, probabilities = redraw(logits[rows], drawn)
        tokens[rows], logprobs[rows] = redrawn.int(), probabilities
        return tokens, logprobs

    def _draft(self, table: SlotTable, slots: IntArray, lengths: IntArray) -> Drafts:
        """Draw one token after the other, each pass for the requests that are not done; writes tokens and KV."""
        tokens = np.zeros((len(slots), int(lengths.max(initial=0))), np.int32)
        self._logits = []
        for place in range(tokens.shape[1]):
            going = np.flatnonzero(lengths > place)
            if not len(going):
                break
            cells = table.computed[slots[going]] + place
            drawn = self._pass(rows_of(slots[going], cells))
            table.tokens[slots[going], cells + 1] = tokens[going, place] = drawn
            lengths[going[drawn == self._host.stop_token]] = place + 1
        return Drafts(tokens, lengths)

    def _pass(self, step: Step) -> IntArray:
        """Return what the drafter draws, of each row."""
        inputs = step_inputs(step, self._host.slots, self._host.device)
        logits = self._model.forward(inputs)
        if self._rejection:
            self._logits.append(logits)
        return self._host.ops.sample(logits, inputs)[0].cpu().numpy()

    def _drawn(self, drafts: Drafts, inputs: StepInputs) -> tuple[Tensor, Drawn]:
        """Return which rows of the step have a draft after them, in the order of drafting, and what it was."""
        first = np.cumsum(drafts.counts + 1) - drafts.counts - 1
        drafting = [np.flatnonzero(drafts.counts > place) for place in range(len(self._logits))]
        rows = torch.from_numpy(np.concatenate([first[r] + place for place, r in enumerate(drafting)]))
        tokens = torch.from_numpy(np.concatenate([drafts.tokens[r, place] for place, r in enumerate(drafting)]))
        rows, tokens = rows.to(self._host.device), tokens.to(self._host.device).long()
        return rows, Drawn(
            tokens=tokens,
            logits=torch.cat(self._logits),
            temperature=inputs.temperature[rows],
            keys=inputs.keys[rows],
            positions=inputs.sampled_positions[rows],
        )

    def _with_drafter(self, cost: StepCost) -> StepCost:
        """Add what the drafter's own passes take, unless that is known."""
        if cost.draft_weights_s is not None:
            return cost
        own = measure(self._run_rows, self._host.num_slots)
        self._logits = []
        return replace(
            cost,
            draft_step_s=0.0,  # what looking up a suffix takes
            draft_weights_s=max(own.plain_s(1, 0) - cost.step_s, 0.0),
            draft_token_s=max(own.row_s - cost.row_s, 0.0),
        )

    def _run_rows(self, rows: int) -> None:
        nothing = np.zeros(rows, np.int32)
        self._pass(rows_of(nothing, nothing))
