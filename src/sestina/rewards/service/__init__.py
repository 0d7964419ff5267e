"""Rewards that are asked for over HTTP, and the server that gives them.

caller.py    one kind of call: tried again with back-off, ended by its deadline
secret.py    the key a call is signed with
judge.py     an LLM judge behind any OpenAI-compatible endpoint; its budget
score.py     what a judge is told, and how its answer is read
remote.py    a reward server
wire.py      what reward server and its clients tell each other
scorer.py    calls in the place of a worker process
serving.py   the reward server; `python -m sestina.rewards.server` starts it
"""
