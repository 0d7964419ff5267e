"""Decodes prompts of a run with drafts, chunks and migration, and without, and writes the verdict."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from sestina.config.run import RunConfig
from sestina.controller.instance import instance_config
from sestina.controller.preflight import prepare
from sestina.controller.unsupported import unsupported
from sestina.core.errors import ModelError
from sestina.drafting.history.answers import Answers, to_record
from sestina.kvpool.config import NO_KV_POOL
from sestina.models.shape import read_shape
from sestina.models.weights import read_weights
from sestina.rollout.build import InstanceConfig, build_engine
from sestina.rollout.certificate.asked import Effort, requests_of
from sestina.rollout.certificate.checks import Check, alike, close, equal, used
from sestina.rollout.certificate.decode import Response, decode
from sestina.rollout.certificate.page import Certificate, page
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.config import DraftConfig
from sestina.rollout.speculation.desk import DraftDesk
from sestina.telemetry.aside import written_aside
from sestina.telemetry.measurements import commit_of, this_machine

OUT = Path("out/certificates")
OTHER_NOISE = 1 << 30
"""Added to the numbers of groups: the same prompts with other noise."""

Say = Callable[[str], object]
Responses = Sequence[Response]
NOTHING: Responses = ()


class Certifier:
    """Compares one run's ways of decoding."""

    def __init__(self, config: RunConfig, tested_model: Path, effort: Effort, say: Say) -> None:
        self._config = config
        self._materials = prepare(config)
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
        with self._engines(none, config.model.path, 1) as engines:
            coupled = engines[0].info().batch_invariant
            off = self._decode("plain", engines, 0, None)
        checks = self._arm("chunks and migration", none, 2, off, coupled=coupled)
        if drafting is not None:
            equal_tokens = coupled and drafting.acceptance == "coupled"
            drafts = f"drafts ({drafting.source})"
            checks += self._arm(drafts, drafting, 1, off, coupled=equal_tokens)
            checks += self._arm(f"{drafts}, chunks and migration", drafting, 2, off, coupled=equal_tokens)
        return Certificate(
            model=str(config.model.path),
            tested_model=str(self._tested_model),
            engine=f"engine {engine.kind} on {engine.device}, {engine.dtype}",
            coupled=coupled,
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

    def _arm(self, name: str, draft: DraftConfig, count: int, off: Responses, *, coupled: bool) -> list[Check]:
        """Compare one way with plain decoding; chunks change between engines where there are several."""
        chunk_tokens = self._chunk_tokens if count > 1 else None
        with self._engines(draft, self._tested_model, count, off) as engines:
            on = self._decode(name, engines, 0, chunk_tokens)
            checks = used(name, on, drafts=draft.source != "none", chunks=count > 1)
            if coupled:
                return [*checks, equal(name, off, on)]
            other = self._decode(f"{name}, other noise", engines, OTHER_NOISE, chunk_tokens)
        most = self._config.trainer.max_logprob_diff
        return [*checks, close(name, off, on, most=most), alike(name, off, other)]

    def _decode(self, name: str, engines: Sequence[Engine], first: int, chunk_tokens: int | None) -> Responses:
        rollout, prompts = self._config.rollout, [prompt.tokens for prompt in self._materials.prompts]
        limits = {"max_new_tokens": rollout.max_new_tokens, "temperature": rollout.temperature}
        requests = requests_of(prompts, self._effort, first, **limits)
        self._say(f"{name}: {len(requests)} responses")
        found = decode(engines, requests, chunk_tokens=chunk_tokens)
        return [found[request.id] for request in requests]

    @contextmanager
    def _engines(
        self, draft: DraftConfig, model: Path, count: int, answered: Responses = NOTHING
    ) -> Iterator[list[Engine]]:
        """Give engines with weights, closed at the end; where histories are drafted from, they know these answers."""
        weights: Mapping[str, torch.Tensor] = read_weights(model, self._materials.shape)
        with ExitStack() as open:
            engines: list[Engine] = []
            for number in range(count):
                desk = DraftDesk()
                engine = open.enter_context(closing(build_engine(self._instance(draft, model, number), desk)))
                engine.load_weights(0, weights)
                self._remember(desk, answered)
                engines.append(engine)
            yield engines

    def _remember(self, desk: DraftDesk, answered: Responses) -> None:
        take, size = desk.take_history, self._effort.num_samples
        if take is None:
            return
        for group, prompt in enumerate(self._materials.prompts[: len(answered) // size]):
            responses = tuple(response.tokens for response in answered[group * size :][:size])
            record = to_record(Answers(responses=responses, weights=(1,) * size))
            for first in (0, OTHER_NOISE):
                take(first + group, prompt.tokens, record)

    def _instance(self, draft: DraftConfig, model: Path, number: int) -> InstanceConfig:
        log = (OUT / f"{self._config.name}_engine_{number}.log").absolute()
        instance = instance_config(self._config, number)
        return dataclasses.replace(instance, draft=draft, model=model.absolute(), log=log, kv_pool=NO_KV_POOL)


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
    pool, servers = config.rollout.kv_pool.kind, config.draft.servers
    lines = (
        (pool != "none", f"rollout.kv_pool.kind: {pool!r}; what moves between engines is computed again"),
        (servers, f"draft.servers: {servers}; each engine drafts from what it has decoded itself"),
    )
    return tuple(line for there, line in lines if there)


def _drafting(config: RunConfig) -> tuple[DraftConfig | None, tuple[str, ...]]:
    """Return drafts that every step verifies, whether they pay or not; None and the reason where none can be."""
    source = "grouped" if config.draft.source == "none" else config.draft.source
    draft = dataclasses.replace(config.draft, source=source, length="fixed", toggle="always", guard=False, servers=0)
    reasons = [line for line in unsupported(dataclasses.replace(config, draft=draft)) if line.startswith("draft.")]
    return (None, tuple(reasons)) if reasons else (draft, ())
