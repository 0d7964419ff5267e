"""The rollout rank: runs one engine, takes chunks and weights from the controller, reports what ended."""

import time
from contextlib import closing, nullcontext
from pathlib import Path

import torch

from sestina.core.units import Seconds, Version
from sestina.models.weights import read_weights
from sestina.rollout.build import InstanceConfig, build_desk, build_engine
from sestina.rollout.engine import Engine
from sestina.transport.link import Link
from sestina.transport.messages import (
    AbortChunks,
    Bye,
    ChunkEnded,
    DraftReport,
    DraftServers,
    GroupHistory,
    InstanceReady,
    JoinWeights,
    LoadReport,
    LoadWeights,
    Message,
    ReceiveWeights,
    StartChunk,
    Stop,
    UpcomingChunks,
    WeightLayout,
    WeightsJoined,
    WeightsLoaded,
)
from sestina.weights.buffer import WeightBuffer
from sestina.weights.group import UpdateGroup
from sestina.weights.rendezvous import connect_store
from sestina.weights.update import receive


class RolloutWorker:
    """Owns the engine; `run` returns when the controller says Stop."""

    def __init__(self, config: InstanceConfig, link: Link) -> None:
        torch.set_num_threads(1)
        self._config = config
        self._link = link
        self._device = torch.device(config.engine.device)
        # A server has a copy of its own; what is kept for the next one need not fill a GPU.
        self._keep_on = self._device if config.engine.kind == "torch" else torch.device("cpu")
        link.announce("building the engine")
        self._desk = build_desk(config)
        self._engine: Engine = build_engine(config, self._desk)
        self._updates: tuple[UpdateGroup, WeightLayout] | None = None
        self._buffer = WeightBuffer()
        self._stopped = False

    def run(self) -> None:
        """Serve until told to stop; raises what the engine, the update group or a missing controller raise."""
        self._link.send(self._ready())
        shared = self._desk.shared
        with closing(self._engine), closing(self._buffer), closing(shared) if shared else nullcontext():
            while not self._stopped:
                for message in self._link.poll(self._load_report):
                    self._handle(message)
                self._link.send(*self._buffer.arrived())
                if shared:
                    shared.exchange(time.monotonic())
                if self._engine.idle:
                    self._link.rest()
                elif not self._stopped:
                    self._step()
        self._link.send(Bye())
        self._link.close(self._config.stop_s)

    def _step(self) -> None:
        results = self._engine.step()
        if not results:
            return
        now, kv = time.monotonic(), self._engine.load().kv
        instance = self._config.instance
        self._link.send(*(ChunkEnded(instance=instance, result=result, clock_s=now, kv=kv) for result in results))

    def _handle(self, message: Message) -> None:
        match message:
            case StartChunk():
                self._turn(message.version)
                self._engine.submit(message.chunk)
            case GroupHistory():
                assert self._desk.take_history is not None, "a history was sent that nobody drafts from"
                self._desk.take_history(message.group, message.prompt, message.record)
            case AbortChunks():
                self._engine.abort(list(message.ids))
                self._step()  # an engine that has nothing left is idle, and would not be asked for them
            case DraftServers():
                assert self._desk.shared is not None, "draft servers for a rank that was not to expect any"
                self._desk.shared.connect(message.addresses, Path(message.keys))
            case UpcomingChunks():
                self._engine.expect(message.ids, message.near)
            case JoinWeights():
                self._join(message)
            case ReceiveWeights():
                self._receive(message)
            case LoadWeights():
                self._read(message)
            case Stop():
                self._stopped = True
            case _:
                raise AssertionError(f"a rollout rank cannot answer {type(message).__name__}")

    def _join(self, message: JoinWeights) -> None:
        self._link.announce("joining the weight-update group")
        limit_s = self._config.weights_timeout_s
        store = connect_store(message.host, message.port, limit_s)
        group = UpdateGroup(
            store, rank=message.rank, world_size=message.world_size, device=self._device, limit_s=limit_s
        )
        self._updates = group, message.layout
        self._link.send(WeightsJoined())

    def _receive(self, message: ReceiveWeights) -> None:
        if not message.load:
            self._buffer.receive(message.version, *self._update_group())
            return
        self._link.announce(f"receiving weights of version {message.version}")
        start = time.monotonic()
        tensors = receive(*self._update_group(), message.version, keep_on=self._keep_on)
        self._load(message.version, tensors)
        self._confirm(message.version, tensors, start)

    def _update_group(self) -> tuple[UpdateGroup, WeightLayout]:
        assert self._updates is not None, "weights were sent before this rank joined the update group"
        return self._updates

    def _turn(self, version: Version | None) -> None:
        """Load the weights that a chunk asks for, unless they or newer ones are there; no other chunk may be running.

        Raises DeadlineError when they do not arrive.
        """
        loaded = self._engine.version
        if version is not None and loaded is not None and version > loaded:
            self._link.announce(f"loading weights of version {version}")
            self._load(version, self._buffer.take(version, self._config.weights_timeout_s))

    def _read(self, message: LoadWeights) -> None:
        self._link.announce(f"reading weights of version {message.version}")
        start = time.monotonic()
        dtype = getattr(torch, message.dtype)
        tensors = read_weights(Path(message.directory), self._config.shape)
        kept = {name: tensor.to(self._keep_on, dtype) for name, tensor in tensors.items()}
        self._load(message.version, kept)
        self._confirm(message.version, kept, start)

    def _load(self, version: Version, tensors: dict[str, torch.Tensor]) -> None:
        self._link.send(DraftReport(instance=self._config.instance, tally=self._desk.tally.take()))
        if self._desk.shared:
            self._desk.shared.begin(version)
        self._engine.load_weights(version, tensors)

    def _confirm(self, version: Version, tensors: dict[str, torch.Tensor], start: Seconds) -> None:
        num_bytes = sum(tensor.nbytes for tensor in tensors.values())
        loaded = WeightsLoaded(version=version, num_bytes=num_bytes, seconds=time.monotonic() - start)
        self._link.send(self._load_report(), loaded)  # counts of all that the last weights have decoded

    def _ready(self) -> InstanceReady:
        info = self._engine.info()
        return InstanceReady(
            instance=self._config.instance,
            kv_capacity_tokens=info.kv_capacity_tokens,
            page_tokens=info.page_tokens,
            max_running=info.max_running,
            batch_invariant=info.batch_invariant,
            drafter=info.drafter,
        )

    def _load_report(self) -> LoadReport:
        desk = self._desk
        counts = dict(desk.counts) | (desk.shared.counts if desk.shared else {})
        return LoadReport(instance=self._config.instance, load=self._engine.load(), drafting=counts)
