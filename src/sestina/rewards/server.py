"""A reward server's process.

    python -m sestina.rewards.server conf/reward/code.yaml num_workers=8 --port 8400 --key-file token.key

The file is a section `reward` of a run's configuration, which KEY=VALUE changes. Says {"address": "http://..."} as one
line on stdout when it can be called, and ends on SIGTERM or SIGINT, once what it has taken is answered.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from sestina.core.errors import ConfigError, SestinaError
from sestina.rewards.config import (
    CodeConfig,
    ExactConfig,
    FunctionConfig,
    JudgeConfig,
    MathConfig,
    RewardConfig,
)
from sestina.rewards.key_rules import broken_rules
from sestina.rewards.pool import RewardPool
from sestina.rewards.rules import check
from sestina.rewards.service.secret import read_secret
from sestina.rewards.service.serving import RewardServer, ServerSettings

KINDS: dict[str, type[RewardConfig]] = {
    "exact": ExactConfig,
    "math": MathConfig,
    "function": FunctionConfig,
    "code": CodeConfig,
    "judge": JudgeConfig,
}
MIN_TOKEN_CHARACTERS = 16


def main() -> int:
    """Serve until a signal; returns the exit code."""
    arguments = _arguments()
    try:
        _check_limits(arguments)
        config = read_reward(arguments.reward, arguments.changes)
        check(config)
        asyncio.run(_serve(config, _token(arguments), arguments))
    except SestinaError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sestina.rewards.server", description="Serve rewards to runs.")
    parser.add_argument("reward", type=Path, help="YAML of a section `reward`, as conf/reward/code.yaml")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="keys of the section to change")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at; what passes is not encrypted")
    parser.add_argument("--port", type=int, default=8400, help="0: any that is free")
    parser.add_argument("--key-env", default=None, help="environment variable that holds the token")
    parser.add_argument("--key-file", type=Path, default=None, help="file of mode 600 that holds the token")
    parser.add_argument("--max-waiting", type=int, default=1024, help="samples taken and not yet answered")
    parser.add_argument("--max-body-bytes", type=int, default=16 << 20, help="of one request")
    parser.add_argument("--stop-s", type=float, default=60.0, help="for what has been taken to be answered at the end")
    return parser.parse_args()


def _check_limits(arguments: argparse.Namespace) -> None:
    least = {"max_waiting": 1, "max_body_bytes": 1, "stop_s": 0.001, "port": 0}
    given = {name: (getattr(arguments, name), limit) for name, limit in least.items()}
    if faults := [f"--{n.replace('_', '-')}: {v} is not allowed; at least {m}" for n, (v, m) in given.items() if v < m]:
        raise ConfigError(faults)


def read_reward(path: Path, changes: Sequence[str] = ()) -> RewardConfig:
    """Read and check a section `reward`; raises ConfigError with every violation."""
    try:
        section = yaml.safe_load(path.read_text())
        changed = {key: yaml.safe_load(value) for key, _, value in (change.partition("=") for change in changes)}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read as YAML: {error}"]) from None
    if not isinstance(section, dict):
        raise ConfigError([f"{path}: expected keys and values, found {type(section).__name__}"])
    values = cast("dict[str, Any]", section) | changed
    kind = KINDS.get(str(values.get("kind")))
    if kind is None:
        raise ConfigError([f"reward.kind: {values.get('kind')!r} is not served; one of {', '.join(KINDS)}"])
    try:
        config = TypeAdapter(kind).validate_json(json.dumps(values, default=str), strict=True, extra="forbid")
    except ValidationError as error:
        lines = [f"reward.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise ConfigError(lines) from None
    if lines := broken_rules(config):
        raise ConfigError(lines)
    return config


def _token(arguments: argparse.Namespace) -> str:
    token = read_secret(arguments.key_env, arguments.key_file)
    if token is None or len(token) < MIN_TOKEN_CHARACTERS:
        raise ConfigError([f"--key-env or --key-file must name a token of at least {MIN_TOKEN_CHARACTERS} characters"])
    return token


async def _serve(config: RewardConfig, token: str, arguments: argparse.Namespace) -> None:
    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        max_waiting=arguments.max_waiting,
        max_body_bytes=arguments.max_body_bytes,
        stop_s=arguments.stop_s,
    )
    async with RewardPool(config) as pool:
        await RewardServer(pool, token, settings).serve(_tell)


def _tell(address: str) -> None:
    sys.stdout.write(json.dumps({"address": address}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
