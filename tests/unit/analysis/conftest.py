import pytest

from sestina.analysis.run import read_run

from .helpers import leave_run


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Leaves a run and reads it."""

    def leave(name, *changes, **options):
        folder = tmp_path_factory.mktemp("runs") / name
        leave_run(folder, *changes, **options)
        return read_run(folder)

    return leave


@pytest.fixture(scope="module")
def divided(left):
    return left("divided")
