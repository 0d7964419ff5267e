"""Keys: from the environment or a file, into memory; never into a configuration, a log or an error."""

import os
import stat
from pathlib import Path

from sestina.core.errors import AbsentError, ConfigError


def read_secret(env: str | None, file: Path | None) -> str | None:
    """Return the key, None where neither source is named.

    Raises AbsentError when what is named is not here, ConfigError when it is no key, both are named, or others may read
    the file.
    """
    if env and file:
        raise ConfigError(["reward.key_file: not together with reward.key_env; one of them, or neither"])
    if env:
        if env not in os.environ:
            raise AbsentError([f"reward.key_env: the environment has no variable '{env}'"])
        return _checked(os.environ[env], f"reward.key_env: variable '{env}'")
    return None if file is None else _checked(_text(file), f"reward.key_file: '{file}'")


def _text(file: Path) -> str:
    try:
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            raise ConfigError([f"reward.key_file: '{file}' may be read by others; mode 600 is allowed"])
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise AbsentError([f"reward.key_file: '{file}' cannot be read: {type(error).__name__}"]) from None


def _checked(text: str, named: str) -> str:
    key = text.strip()
    # It goes into a header.
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError([f"{named} holds no key: one line of printable ASCII without blanks is allowed"])
    return key
