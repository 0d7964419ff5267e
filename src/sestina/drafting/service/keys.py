"""The CURVE keys of a run: one pair for its servers, one for its clients; each side's file holds what it needs."""

import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from sestina.core.errors import RunDirError

SERVER_FILE, CLIENT_FILE = "draft_server.key", "draft_client.key"
KEY_CHARACTERS = 40
MODE = 0o600


class ServerKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Z85 text, as in the file of the servers."""

    public: str
    secret: str
    client_public: str


class ClientKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Z85 text, as in the file of the clients."""

    public: str
    secret: str
    server_public: str


Keys = TypeVar("Keys", ServerKeys, ClientKeys)


def make_keys(folder: Path) -> None:
    """Write keys for one run, in place of older ones; readable by this user alone."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
    _write(folder / SERVER_FILE, ServerKeys(public=public, secret=secret, client_public=client_public))
    _write(folder / CLIENT_FILE, ClientKeys(public=client_public, secret=client_secret, server_public=public))


def read_server_keys(folder: Path) -> ServerKeys:
    """Return the servers' keys; raises RunDirError when the file is not what `make_keys` wrote, or others can read."""
    return _read(folder / SERVER_FILE, ServerKeys)


def read_client_keys(folder: Path) -> ClientKeys:
    """Return the clients' keys; raises RunDirError when the file is not what `make_keys` wrote, or others can read."""
    return _read(folder / CLIENT_FILE, ClientKeys)


def _write(path: Path, keys: ServerKeys | ClientKeys) -> None:
    aside = path.with_suffix(".part")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
        file.write(msgspec.json.encode(keys))
    aside.replace(path)


def _read(path: Path, kind: type[Keys]) -> Keys:
    try:
        mode, raw = stat.S_IMODE(path.stat().st_mode), path.read_bytes()
        keys = msgspec.json.decode(raw, type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise RunDirError(f"{path}: no keys of draft servers: {error}") from None
    if mode & 0o077:
        raise RunDirError(f"{path}: has mode {mode:04o}: must be {MODE:04o}, for this user alone")
    if any(len(text) != KEY_CHARACTERS for text in msgspec.structs.astuple(keys)):
        raise RunDirError(f"{path}: a key must be {KEY_CHARACTERS} characters")
    return keys
