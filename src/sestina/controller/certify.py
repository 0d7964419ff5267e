"""Decodes prompts of a run with drafts, chunks and migration, and without, and writes the verdict."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from sestina.config.run import RunConfig
from sestina.controller.instance import instance_config
from sestina.controller.preflight import prepare
from sestina.controller.unsupported import unsupported
from sestina.core.errors import ModelError
from sestina.core.records import ChunkRequest
from sestina.kvpool.config import NO_KV_POOL
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.build import InstanceConfig
from sestina.rollout.certificate.asked import OTHER_NOISE, Effort, requests_of
from sestina.rollout.certificate.checks import Check, HeldBy, alike, close, equal, equal_but_for_ties, used
from sestina.rollout.certificate.decode import Response, decode
from sestina.rollout.certificate.page import Certificate, page
from sestina.rollout.certificate.pairs import NOTHING, Pair, pairs_of
from sestina.rollout.config import EngineConfig
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.config import DraftConfig
from sestina.telemetry.aside import written_aside
from sestina.telemetry.measurements import commit_of, this_machine

OUT = Path("out/certificates")
Say = Callable[[str], object]


class Certifier:
    """Compares one run's ways of decoding."""

    def __init__(self, config: RunConfig, tested_model: Path, effort: Effort, say: Say) -> None:
        self._config = config
        self._materials = prepare(config)
        self._prompts = [prompt.tokens for prompt in self._materials.prompts[: effort.num_prompts]]
        self._tested_model = tested_model
        self._effort = effort
        self._say = say
        self._chunk_tokens = max(1, min(config.rollout.chunk_tokens, config.rollout.max_new_tokens // 4))
        if read_shape(tested_model) != self._materials.shape:
            raise ModelError(f"{tested_model}: of another shape than {config.model.path}, which it is held against")

    def certify(self) -> Certificate:
        """Decode every way, one after the other."""
        config, engine = self._config, self._config.rollout.engine
        none = dataclasses.replace(self._config.draft, source="none")
        drafting, left_out = _drafting(config)
        with self._engines(none) as pairs:
            held_by = _held_by(engine, pairs[0].engine)
            self._load(pairs[:1], config.model.path)
            off = self._decode("plain", pairs[:1], 0, None)
            checks = self._arm("chunks and migration", pairs, off, held_by)
        if drafting is not None:
            drafts_by = held_by if drafting.acceptance == "coupled" else "distributions"
            drafts = f"drafts ({drafting.source})"
            with self._engines(drafting) as pairs:
                checks += self._arm(drafts, pairs[:1], off, drafts_by)
                checks += self._arm(f"{drafts}, chunks and migration", pairs, off, drafts_by)
        return Certificate(
            model=str(config.model.path),
            tested_model=str(self._tested_model),
            engine=f"engine {engine.kind} on {engine.device}, {engine.dtype}",
            held_by=held_by,
            num_prompts=self._effort.num_prompts,
            num_samples=self._effort.num_samples,
            max_new_tokens=config.rollout.max_new_tokens,
            chunk_tokens=self._chunk_tokens,
            machine=this_machine().cpu,
            commit=commit_of(Path.cwd()),
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            checks=tuple(checks),
            left_out=left_out + _not_decoded_with(config),
        )

    def _arm(self, name: str, pairs: Sequence[Pair], off: Sequence[Response], held_by: HeldBy) -> list[Check]:
        """Compare one way with plain decoding; chunks change between engines where there are several."""
        several = len(pairs) > 1
        chunk_tokens = self._chunk_tokens if several else None
        self._load(pairs, self._tested_model, off)
        on = self._decode(name, pairs, 0, chunk_tokens)
        checks = used(name, on, drafts=pairs[0].drafts, chunks=several)
        match held_by:
            case "bits":
                return [*checks, equal(name, off, on)]
            case "noise":
                return [*checks, equal_but_for_ties(name, off, on, self._requests(0), seed=self._config.seed)]
            case "distributions":
                other = self._decode(f"{name}, other noise", pairs, OTHER_NOISE, chunk_tokens)
                most = self._config.trainer.max_logprob_diff
                return [*checks, close(name, off, on, most=most), alike(name, off, other)]

    def _decode(self, name: str, pairs: Sequence[Pair], first: int, chunk_tokens: int | None) -> Sequence[Response]:
        requests = self._requests(first)
        self._say(f"{name}: {len(requests)} responses")
        found = decode([pair.engine for pair in pairs], requests, chunk_tokens=chunk_tokens)
        return [found[request.id] for request in requests]

    def _requests(self, first: int) -> list[ChunkRequest]:
        rollout = self._config.rollout
        limits = {"max_new_tokens": rollout.max_new_tokens, "temperature": rollout.temperature}
        return requests_of(self._prompts, self._effort, first, **limits)

    def _engines(self, draft: DraftConfig) -> AbstractContextManager[list[Pair]]:
        """Return as many engines as chunks need to change between them, without weights."""
        return pairs_of([self._instance(draft, number) for number in range(2)])

    def _load(self, pairs: Sequence[Pair], model: Path, answered: Sequence[Response] = NOTHING) -> None:
        """Give engines the weights of a model; histories that are drafted from are these answers."""
        weights = read_weights(model, self._materials.shape)
        for pair in pairs:
            pair.load(weights)
            pair.remember(self._prompts, answered)

    def _instance(self, draft: DraftConfig, number: int) -> InstanceConfig:
        log = (OUT / f"{self._config.name}_engine_{number}.log").absolute()
        instance = instance_config(self._config, number)
        return dataclasses.replace(instance, draft=draft, log=log, kv_pool=NO_KV_POOL)


def certify(config: RunConfig, name: str, tested_model: Path | None, say: Say, effort: Effort | None = None) -> bool:
    """Write out/certificates/NAME.md and .json, and return whether all is as it must be."""
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    certificate = Certifier(config, tested_model or config.model.path, effort or Effort(), say).certify()
    text = page(certificate)
    tree = {"passed": certificate.passed, **msgspec.to_builtins(certificate)}
    for file, content in ((f"{name}.md", text), (f"{name}.json", _json(tree))):
        with written_aside(OUT / file) as aside:
            aside.write_text(content, encoding="utf-8")
    say(text)
    return certificate.passed


def _json(tree: object) -> str:
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"


def _not_decoded_with(config: RunConfig) -> tuple[str, ...]:
    """Return what a run has, and a certificate goes without."""
    pool, servers, asks = config.rollout.kv_pool.kind, config.draft.servers, config.environment.kind
    lines = (
        (pool != "none", f"rollout.kv_pool.kind: {pool!r}; what moves between engines is computed again"),
        (asks != "none", f"environment.kind: {asks!r}; responses are decoded without turns"),
        (servers, f"draft.servers: {servers}; each engine drafts from what it has decoded itself"),
    )
    return tuple(line for there, line in lines if there)


def _held_by(config: EngineConfig, engine: Engine) -> HeldBy:
    """Return what the engine's tokens have in common, however they are batched."""
    if engine.info().batch_invariant:
        return "bits"
    return "noise" if (config.kind, config.device, config.dtype) == ("sglang", "cpu", "float32") else "distributions"


def _drafting(config: RunConfig) -> tuple[DraftConfig | None, tuple[str, ...]]:
    """Return drafts that every step verifies, whether they pay or not; None and the reason where none can be."""
    source = "grouped" if config.draft.source == "none" else config.draft.source
    draft = dataclasses.replace(config.draft, source=source, length="fixed", toggle="always", guard=False, servers=0)
    reasons = [line for line in unsupported(dataclasses.replace(config, draft=draft)) if line.startswith("draft.")]
    return (None, tuple(reasons)) if reasons else (draft, ())
