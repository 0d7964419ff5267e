from pathlib import Path

import pytest

from sestina.config.change import as_overrides, with_changes
from sestina.config.load import load
from sestina.config.split import allowed_shares, changes_to, measured_step, other_shares, share_of
from sestina.core.errors import ConfigError, DataError
from sestina.policies.split import Share
from sestina.telemetry.metrics import StepMetrics
from tests.unit.config.helpers import changed, composed

SEER = ("+exp=seer_qwen72b",)
RUN = Path("runs/seer")


def config_of(*changes, argv=SEER):
    return load(changed(*changes, argv=argv))


def lines_of(*steps):
    names = ("perf/rollout_s", "perf/train_s", "perf/weights_s")
    return [
        StepMetrics(step=step, time=0.0, values=dict(zip(names, spans, strict=False)))
        for step, spans in enumerate(steps, start=1)
    ]


def test_what_is_proposed_can_be_pasted():
    config = config_of()
    shares = allowed_shares(config)
    assert [(share.rollout_gpus, share.trainer_gpus) for share in shares] == [(96, 32), (64, 64), (32, 96)]
    for share in shares:
        changes = changes_to(config, share)
        pasted = load(composed(*SEER, *as_overrides(changes).split()))
        assert pasted == with_changes(config, changes)
        assert share_of(pasted) == share
        assert pasted.rollout.num_instances == share.rollout_gpus // 8


def test_shares_that_the_rules_refuse_are_not_allowed():
    config = config_of(argv=("+exp=areal_7b",))
    whole, allowed = other_shares(config), allowed_shares(config)
    assert {share.trainer_gpus % 8 for share in allowed} == {0}  # nodes are filled
    assert len(allowed) < len(whole)
    assert share_of(config) in allowed


def test_changes_that_are_refused_say_so():
    with pytest.raises(ConfigError, match="trainer.num_ranks: 33 is not allowed"):
        with_changes(config_of(), {"trainer.num_ranks": 33})
    assert as_overrides({"a.b": "x", "c": 3, "d": True, "e": None}) == "a.b=x c=3 d=true e=null"


def test_a_measured_step_is_the_median():
    found = measured_step(RUN, config_of(), lines_of((9.0, 90.0, 1.0), (2.0, 20.0, 3.0), (3.0, 30.0, 2.0)))
    assert (found.rollout_s, found.train_s, found.weights_s) == (3.0, 30.0, 2.0)
    assert found.share == Share(rollout_gpus=96, trainer_gpus=32)


def test_steps_that_say_nothing_of_a_split_are_refused():
    with pytest.raises(ConfigError, match="cluster: null leaves no GPUs to share"):
        measured_step(RUN, config_of(argv=("+exp=quickstart",)), lines_of((1.0, 1.0, 1.0)))
    with pytest.raises(ConfigError, match=r"cluster.gpus: 0 leaves no GPUs to share"):
        share_of(config_of(argv=("+exp=quickstart_slurm",)))
    with pytest.raises(DataError, match=r"runs/seer: run.mode 'async' overlaps rollout and training"):
        measured_step(RUN, config_of("run.mode=async"), lines_of((1.0, 1.0, 1.0)))
    with pytest.raises(DataError, match=r"runs/seer: no step has perf/train_s"):
        measured_step(RUN, config_of(), lines_of((1.0,), (2.0,)))
