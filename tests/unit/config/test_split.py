import pytest

from sestina.config.change import as_overrides, with_changes
from sestina.config.load import load
from sestina.config.split import allowed_shares, changes_to, other_shares, share_of
from sestina.core.errors import ConfigError
from tests.unit.config.helpers import changed, composed

SEER = ("+exp=seer_qwen72b",)


def config_of(*changes, argv=SEER):
    return load(changed(*changes, argv=argv))


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


def test_a_run_without_gpus_has_nothing_to_share():
    with pytest.raises(ConfigError, match="cluster: null leaves no GPUs to share"):
        share_of(config_of(argv=("+exp=quickstart",)))
    with pytest.raises(ConfigError, match=r"cluster.gpus: 0 leaves no GPUs to share"):
        share_of(config_of(argv=("+exp=quickstart_slurm",)))
