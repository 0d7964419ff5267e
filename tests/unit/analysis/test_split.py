import dataclasses
import re

from sestina.analysis.page import write_page
from sestina.analysis.split import measured_step, split_text
from sestina.config.load import load
from sestina.telemetry.metrics import StepMetrics
from tests.unit.config.helpers import changed, composed

SEER = ("+exp=seer_qwen72b",)


def run_of(divided, *steps, changes=()):
    """A run that was left, as one on 128 GPUs whose steps took other times."""
    names = ("perf/rollout_s", "perf/train_s", "perf/weights_s")
    lines = [dict(zip(names, spans, strict=False)) for spans in steps]
    metrics = [StepMetrics(step=step, time=0.0, values=values) for step, values in enumerate(lines, start=1)]
    return dataclasses.replace(divided, config=load(changed(*changes, argv=SEER)), metrics=metrics)


def test_a_split_is_proposed_that_can_be_pasted(divided):
    lines = split_text(run_of(divided, (1990.0, 7757.0, 1.0))).splitlines()
    assert lines[0] == f"Split of 128 GPUs, foreseen from the median step of {divided.name}"
    assert lines[1] == "  one after the other (run.mode sync): 9,748.0 s as it is, 96 + 32"
    assert lines[2] == f"    {1990 * 1.5 + 7757 / 2 + 1:,.1f} s with 64 + 64:"
    pasted = load(composed(*SEER, *lines[3].split()))
    assert (pasted.cluster.rollout_gpus, pasted.rollout.num_instances, pasted.trainer.num_ranks) == (64, 8, 64)
    assert lines[4].startswith("  at the same time (run.mode pipelined or async): 7,758.0 s as it is")


def test_what_cannot_be_bettered_is_said(divided):
    lines = split_text(run_of(divided, (900.0, 100.0, 1.0))).splitlines()
    assert lines[2] == lines[4] == "    nothing better is foreseen"


def test_a_measured_step_is_the_median(divided):
    found = measured_step(run_of(divided, (9.0, 90.0, 1.0), (2.0, 20.0, 3.0), (3.0, 30.0, 2.0)))
    assert (found.rollout_s, found.train_s, found.weights_s) == (3.0, 30.0, 2.0)
    assert (found.share.rollout_gpus, found.share.trainer_gpus) == (96, 32)


def test_where_nothing_is_proposed_a_line_says_why(divided, tmp_path):
    assert (
        split_text(divided)
        == "No split of GPUs is proposed: cluster: null leaves no GPUs to share; cluster=gpu has some"
    )
    overlapping = run_of(divided, (1.0, 1.0, 1.0), changes=("run.mode=async",))
    assert re.fullmatch(
        r"No split .*: run.mode 'async' overlaps .*; a run of mode 'sync' is read", split_text(overlapping)
    )
    untrained = run_of(divided, (1.0,), (2.0,))
    assert split_text(untrained) == f"No split of GPUs is proposed: {divided.path}: no step has perf/train_s"
    write_page([divided], tmp_path / "page.html")
    assert "No split of GPUs is proposed: cluster: null" in (tmp_path / "page.html").read_text()
