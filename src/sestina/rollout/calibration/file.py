"""The file of a calibration: written whole, read strictly, used by nothing but the engine that it is of."""

import dataclasses
import math
from pathlib import Path

import msgspec
from pydantic import TypeAdapter, ValidationError

from sestina.core.errors import AbsentError, ConfigError
from sestina.models.shape import ModelShape
from sestina.policies.drafting.calibration import VERSION, CalibratedEngine, Calibration
from sestina.policies.drafting.cost import StepCost
from sestina.policies.drafting.serving import ServingCost
from sestina.rollout.config import TorchEngineConfig
from sestina.telemetry.aside import written_aside

_ADAPTER = TypeAdapter(Calibration)
KEY = "draft.calibration"
"""Of the configuration, that mostly names one."""
AGAIN = "`python launch/calibrate.py` takes another"


def engine_of(shape: ModelShape, engine: TorchEngineConfig) -> CalibratedEngine:
    """Return what decides the times of an engine's steps."""
    names = [field.name for field in dataclasses.fields(CalibratedEngine)]
    values = {name: getattr(shape, name) for name in names if name not in ("device", "dtype")}
    return CalibratedEngine(**values, device=engine.device, dtype=engine.dtype)


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a file in place of an older one; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n")


def read_calibration(path: Path, key: str = KEY) -> Calibration:
    """Return what a file holds; `key` is the configuration's that names it.

    Raises AbsentError when there is none, ConfigError for another version and for anything that is not a calibration.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise AbsentError([f"{key}: {path}: {reason}; `python launch/calibrate.py` writes one"]) from None
    where = f"{key}: {path}"
    _check_version(where, text)
    try:
        calibration = _ADAPTER.validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _refused(where, f"{place or 'the file'}: {first['msg'].lower()}") from None
    _check_cost(where, "cost", calibration.cost)
    _check_cost(where, "serving", calibration.serving)
    return calibration


def cost_for(path: Path, shape: ModelShape, engine: TorchEngineConfig) -> StepCost:
    """Return the cost of a file; raises as `calibration_for`."""
    return calibration_for(path, shape, engine).cost


def calibration_for(path: Path, shape: ModelShape, engine: TorchEngineConfig, key: str = KEY) -> Calibration:
    """Return what a file holds; raises as `read_calibration`, and ConfigError for another model, device or type."""
    calibration = read_calibration(path, key)
    taken, wanted = calibration.engine, engine_of(shape, engine)
    differing = [
        f"{field.name} {getattr(taken, field.name)!r}, this run has {getattr(wanted, field.name)!r}"
        for field in dataclasses.fields(CalibratedEngine)
        if getattr(taken, field.name) != getattr(wanted, field.name)
    ]
    if differing:
        raise _refused(f"{key}: {path}", f"taken with {'; with '.join(differing)}")
    return calibration


def _check_version(where: str, text: bytes) -> None:
    try:
        head = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(where, f"not JSON: {error}") from None
    version = head.get("version") if isinstance(head, dict) else None
    if version != VERSION:
        raise _refused(where, f"version {version!r} of the format, allowed is {VERSION}")


def _check_cost(where: str, section: str, cost: StepCost | ServingCost) -> None:
    for field in dataclasses.fields(cost):
        value = getattr(cost, field.name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise _refused(where, f"{section}.{field.name}: {value}, allowed is a number of seconds of at least 0")


def _refused(where: str, reason: str) -> ConfigError:
    return ConfigError([f"{where}: {reason}; {AGAIN}"])
