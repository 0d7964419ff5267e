"""Decisions: told the time and what happened, answering with commands; no I/O, no clock, no threads.

events.py          what planners are told and what they answer
request_buffer.py  the life cycle of requests under divided rollout
instances.py       what each rollout instance has reserved
scheduler.py       the Protocol of schedulers; group.py, divided.py, context.py, oracle.py are four
ranking.py         keys that change, and the least of them
planner.py         composes them; the object that both the real and the simulated driver run
staleness.py       the gate of asynchronous training: how many groups may be under way
histopipe/         prompts and workers planned from the last epoch's lengths: pure functions
kv_pool/           keys and values between chunks: what leaves the pool, and whether to move or compute again
drafting/          draft lengths and when to draft: asked once per engine step
"""
