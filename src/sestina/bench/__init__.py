"""Benchmarks: every figure is a ratio, or stands beside what it is compared with, taken in one run.

engine.py     the embedded engine against transformers' `generate`
  decoders.py   the two of them behind one Protocol
  turns.py      two ways to do the same, timed in turns
asynchronous/ bounds of staleness, interruption and micro-batches, emulated
staleness.py  what bounds of staleness do to learning
sglang.py     chunks against whole responses on an SGLang server
simulator.py  how long simulations of whole iterations take
packing.py    micro-batches by token budget against a fixed number of samples
rollout.py    decisions per second of the planner, a million requests buffered
command.py    launched commands
asked.py      figures with what is asked of them
table.py      figures on the terminal
page.py       all figures taken, as a page of the documentation
"""
