import pytest

from sestina.telemetry.config import TelemetryConfig


@pytest.fixture
def config():
    return TelemetryConfig(wandb="off", wandb_project="sestina-tests", wandb_group=None)
