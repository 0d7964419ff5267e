"""What can be found wrong with a service before it is asked."""

from urllib.parse import urlsplit

from sestina.core.errors import ConfigError
from sestina.rewards.config import ServiceConfig
from sestina.rewards.service.secret import read_secret


def check_service(config: ServiceConfig) -> None:
    """Raise ConfigError for an address that cannot be called, or a key that is not here."""
    parts = urlsplit(config.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError([f"reward.url: '{config.url}' is no address; http://HOST[:PORT][/PATH] or https is allowed"])
    if parts.username or parts.password:
        raise ConfigError(["reward.url: it holds a name or password, which logs would show; use reward.key_env"])
    read_secret(config.key_env, config.key_file)
