"""Speculation in the embedded engine: who drafts, how much, and what that costs.

speculator.py  the Protocol between engine and drafter
host.py        the Protocol of drafters that run a model
config.py      what a user sets
suffix.py      drafts out of a suffix index: the request's own text, or that of its group
costs.py       what a step takes on this device, measured when the weights are first there
"""
