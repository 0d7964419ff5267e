import pytest

from sestina.telemetry.config import TelemetryConfig


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch):
    """On a dumb terminal rich ignores the width it is given."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def config():
    return TelemetryConfig(wandb="off", wandb_project="sestina-tests", wandb_group=None)
