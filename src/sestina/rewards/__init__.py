"""Rewards: rules, and the worker processes that apply them away from the event loop.

rules.py         what a configuration means: `load` gives the rule, `check` finds its faults before a run starts
  answers.py     math-verify on label and response
  functions.py   a function of the user's: found by path, called by the convention of its signature
  code.py        programs against the unit tests of a label (tests.py), in a sandbox (sandbox/)
  attempt.py     runs code that is not ours; the one place of this package that catches everything
environments/    what answers between a model's turns
messages.py      what parent and worker tell each other
worker.py        the worker's side: `python -m sestina.rewards.worker`
process.py       the parent's side: one process, started, asked and ended
scorer.py        turns what happens to that process into outcomes, and starts it again
service/         judges and reward servers, asked over HTTP in the place of a worker
server.py        a reward server: `python -m sestina.rewards.server`
pool.py          many workers or calls behind one queue
outcome.py       what scoring came to
"""
