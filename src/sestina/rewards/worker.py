"""The worker's side: reads tasks from stdin, one at a time, and answers each.

    python -m sestina.rewards.worker

Ends when stdin ends and, on Linux, when its parent does, whatever it is doing then. User code finds an empty stdin, and
what it prints goes to stderr.
"""

import asyncio
import os
import signal
import sys
import time
from typing import BinaryIO

from sestina.rewards.attempt import Failure, attempt
from sestina.rewards.messages import (
    END,
    LENGTH_BYTES,
    Answer,
    Begin,
    Question,
    Raised,
    Ready,
    Refused,
    Said,
    Scored,
    Task,
    config_of,
    frame,
    question,
)
from sestina.rewards.outcome import Verdict
from sestina.rewards.rules import Rule, load
from sestina.transport.parent import end_with_parent


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which decides what becomes of its workers.
    # SLURM sends SIGTERM to every process of a job before it takes nodes back. A handler, since what user code starts
    # would inherit that a signal is ignored.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(END, signal.SIG_DFL)
    end_with_parent()
    questions, answers = _take_streams()
    # One loop for all calls: clients that an async function keeps stay bound to it.
    with asyncio.Runner() as runner:
        rule = _begin(questions, answers, runner)
        while rule and isinstance(task := _read(questions), Task):
            _write(answers, _score(rule, task))


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move stdin and stdout to files no user code knows; mutates file descriptors 0 and 1 and sys.stdout."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return questions, answers


def _begin(questions: BinaryIO, answers: BinaryIO, runner: asyncio.Runner) -> Rule | None:
    begin = _read(questions)
    if not isinstance(begin, Begin):
        return None
    rule = attempt(lambda: load(config_of(begin), runner.run))
    if isinstance(rule, Failure):
        _write(answers, Refused(error=rule.error, traceback=rule.traceback))
        return None
    _write(answers, Ready())
    return rule


def _score(rule: Rule, task: Task) -> Answer:
    start = time.monotonic()
    found = attempt(lambda: rule(task.sample))
    elapsed_s = time.monotonic() - start
    match found:
        case Failure():
            return Raised(id=task.id, error=found.error, traceback=found.traceback, elapsed_s=elapsed_s)
        case Verdict(reward=reward, reason=reason, notes=notes):
            return Scored(id=task.id, reward=reward, elapsed_s=elapsed_s, reason=reason, notes=notes)
        case str(text):
            return Said(id=task.id, text=text, elapsed_s=elapsed_s)
        case reward:
            return Scored(id=task.id, reward=reward, elapsed_s=elapsed_s)


def _read(questions: BinaryIO) -> Question | None:
    length = int.from_bytes(questions.read(LENGTH_BYTES), "little")
    return question(questions.read(length)) if length else None


def _write(answers: BinaryIO, message: Answer) -> None:
    answers.write(frame(message))
    answers.flush()


if __name__ == "__main__":
    main()
