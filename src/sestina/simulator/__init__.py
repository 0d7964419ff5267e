"""Runs without their ranks: the planner, journal and admission of a real run under virtual clocks.

clock.py     time that passes only while something works, by as much as that really took
agenda.py    what happens next, in order of virtual time
instance.py  one real engine under a clock of its own
scoring.py   rewards, and the workers that a real run would have waited for
emulated.py  the driver: real engines, real tokens, virtual time
trainer.py   a real trainer, whose time is shared out
training.py  the loop: batch, step, weights, evaluation
run.py       a whole run of it: config.yaml, metrics, journal, traces, figure
"""
