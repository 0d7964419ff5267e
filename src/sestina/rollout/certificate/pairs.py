"""The engines of one way of decoding, which are given weights again and again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from torch import Tensor

from sestina.core.units import TokenArray
from sestina.drafting.history.answers import Answers, to_record
from sestina.rollout.build import InstanceConfig, build_engine
from sestina.rollout.certificate.asked import OTHER_NOISE
from sestina.rollout.certificate.decode import Response
from sestina.rollout.engine import Engine
from sestina.rollout.speculation.desk import DraftDesk

NOTHING: Sequence[Response] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An engine, and the desk of its drafter."""

    engine: Engine
    desk: DraftDesk
    drafts: bool

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Give the engine weights, with which it forgets what it has decoded; raises as `Engine.load_weights`."""
        version = self.engine.version
        self.engine.load_weights(0 if version is None else version + 1, weights)

    def remember(self, prompts: Sequence[TokenArray], answered: Sequence[Response]) -> None:
        """Have it draft from these answers, as many to each of the prompts, where it drafts from histories."""
        take = self.desk.take_history
        if take is None or not answered:
            return
        size = len(answered) // len(prompts)
        for group, prompt in enumerate(prompts):
            responses = tuple(response.tokens for response in answered[group * size :][:size])
            record = to_record(Answers(responses=responses, weights=(1,) * size))
            for first in (0, OTHER_NOISE):
                take(first + group, prompt, record)


@contextmanager
def pairs_of(instances: Sequence[InstanceConfig]) -> Iterator[list[Pair]]:
    """Give engines without weights, closed at the end; raises EngineError when one does not come up."""
    with ExitStack() as open:
        pairs: list[Pair] = []
        for instance in instances:
            desk = DraftDesk()
            engine = open.enter_context(closing(build_engine(instance, desk)))
            pairs.append(Pair(engine=engine, desk=desk, drafts=instance.draft.source != "none"))
        yield pairs
