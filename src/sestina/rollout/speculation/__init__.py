"""Speculation in the embedded engine: who drafts, how much, and what that costs.

speculator.py  the Protocol between engine and drafter
host.py        the Protocol of drafters that run a model
config.py      what a user sets
suffix.py      drafts out of a suffix index: the request's own text, or that of its group
history.py     drafts out of what the prompt was answered in the last epoch
shelf.py       the histories that an engine has, indexed by a thread
sources.py     which of both a draft comes from, and what became of it
tally.py       the counts that a rank tells the controller
desk.py        where the rank hands over histories and takes counts
shared.py      that index, kept in step with other instances' through draft servers
costs.py       what a step takes on this device, measured when the weights are first there
"""
