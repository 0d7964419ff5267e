import pytest

from sestina.core.errors import ConfigError
from sestina.transport.world import check_size, role_at


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ("rollout", ["rollout", "rollout", "rollout"]),
        ("controller@0,trainer@1", ["controller", "trainer", "trainer"]),
        ("controller@0,rollout@1,trainer@2", ["controller", "rollout", "trainer"]),
    ],
)
def test_each_rank_finds_its_role(words, roles):
    assert [role_at(words, rank) for rank in range(3)] == roles


@pytest.mark.parametrize("words", ["", "boss", "controller@", "controller@x", "controller,trainer"])
def test_words_that_are_no_roles(words):
    with pytest.raises(ConfigError, match="are no roles; a role is one of controller, rollout, trainer"):
        role_at(words, 0)


def test_a_rank_before_the_first_of_its_component():
    with pytest.raises(ConfigError, match="rank 1 has none of the roles 'trainer@4'"):
        role_at("trainer@4", 1)


def test_a_world_smaller_than_what_srun_started_names_the_key_to_change(monkeypatch):
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    check_size()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    check_size()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "5")
    with pytest.raises(ConfigError, match="cluster.mpi: srun started 5 ranks, MPI sees a world of 1"):
        check_size()
