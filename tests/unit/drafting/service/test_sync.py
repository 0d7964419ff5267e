"""Whatever a network and a server do to frames, every index ends as one that saw everything itself."""

import itertools

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sestina.drafting.index import DraftSettings, IndexSettings, SuffixIndex
from sestina.drafting.service.exchange import reply_to
from sestina.drafting.service.wire import encode
from tests.unit.drafting.service.helpers import PATIENCE_S, PERIOD_S, Client, settle, store_of, texts_of, tokens

PROMPT = (1, 2, 3)
GROUPS, REQUESTS, CLIENTS = 2, 3, 3
DRAFTS = [DraftSettings(min_token_prob=0.0), DraftSettings(min_token_prob=0.0, top_k=4)]


def check(clients, texts):
    for client, group in itertools.product(clients, range(GROUPS)):
        assert client.index.check_integrity() == ""
        compare(client.index, group, {r: text for (g, r), text in texts.items() if g == group})


def compare(index, group, texts):
    """The index holds these texts, and drafts as one that was given them in the order in which it came by them."""
    direct = SuffixIndex(IndexSettings(vocab_size=index.settings.vocab_size, depth=index.settings.depth))
    direct.start_group(group, tokens(*PROMPT))
    requests, pieces = texts_of(index, group)
    handles, said = {}, dict.fromkeys(texts, 0)
    for request in requests[1:]:
        handles[request] = direct.start_request(group, request)
    for request, piece in pieces[1:]:
        start, end = said[request], said[request] + len(piece)
        row = tokens(*texts[request][start:end])
        direct.append(np.array([handles[request]]), np.array([start]), np.array([0, len(row)]), row)
        said[request] = end
    assert said == {request: len(text) for request, text in texts.items()}
    for request, handle in handles.items():
        for asked in DRAFTS:
            most = np.array([8], np.int32)
            expected = direct.draft(np.array([handle]), most, asked).draft(0)
            found = index.draft(np.array([index.find_request(group, request)]), most, asked).draft(0)
            assert found.token_ids.tolist() == expected.token_ids.tolist()
            assert found.probs.tolist() == expected.probs.tolist()
            assert found.match_len == expected.match_len


class Network(RuleBasedStateMachine):
    """Each response runs at one client at a time, as chunks that go round; frames go astray."""

    @initialize()
    def begin(self):
        self.now, self.lives = 0.0, itertools.count(1)
        self.clients = [Client() for _ in range(CLIENTS)]
        self.restart()
        self.asked, self.replied = [], []
        self.texts = {(g, r): [] for g in range(GROUPS) for r in range(REQUESTS)}
        self.place = {}
        for client, group in itertools.product(self.clients, range(GROUPS)):
            client.register(group, PROMPT)

    @rule(group=st.integers(0, GROUPS - 1), request=st.integers(0, REQUESTS - 1), at=st.integers(0, CLIENTS - 1))
    def move(self, group, request, at):
        """The response goes on at another client, which is told what it has said so far."""
        key = (group, request)
        if key in self.place:
            self.clients[self.place.pop(key)].stop(*key)
        self.clients[at].start(*key, self.texts[key])
        self.place[key] = at

    @precondition(lambda self: self.place)
    @rule(data=st.data(), new=st.lists(st.integers(0, 4), min_size=1, max_size=6), again=st.integers(0, 3))
    def grow(self, data, new, again):
        """A response says more; some of it is appended twice."""
        key = data.draw(st.sampled_from(sorted(self.place)))
        text = self.texts[key]
        start = max(0, len(text) - again)
        text += new
        self.clients[self.place[key]].append(*key, start, text[start:])

    @rule(at=st.integers(0, CLIENTS - 1), late=st.sampled_from([PERIOD_S, PERIOD_S, PATIENCE_S]))
    def ask(self, at, late):
        self.now += late
        frame = self.clients[at].link.compose(self.now)
        if frame is not None:
            self.asked.append((at, frame))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost"]))
    def serve(self, data, fate):
        at, frame = self._any(data, self.asked, keep=fate == "again")
        if fate != "lost":
            self.replied.append((at, encode(reply_to(frame, self.store, self.now))))

    @precondition(lambda self: self.replied)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives", "again", "lost"]))
    def reply(self, data, fate):
        at, frame = self._any(data, self.replied, keep=fate == "again")
        if fate != "lost":
            self.clients[at].link.receive(frame, self.now)

    @rule()
    def restart(self):
        self.store = store_of(first_epoch=next(self.lives) * 1000)

    def _any(self, data, frames, *, keep):
        number = data.draw(st.integers(0, len(frames) - 1))
        return frames[number] if keep else frames.pop(number)

    def teardown(self):
        if hasattr(self, "store"):
            settle(self.clients, self.store, self.now)
            assert [client.responses.num_unsent_tokens for client in self.clients] == [0] * CLIENTS
            check(self.clients, self.texts)


Network.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestNetwork = Network.TestCase
