"""Runs without their ranks: the planner and journal of a real run under virtual clocks.

clock.py     time that passes only while something works, by as much as that really took
agenda.py    what happens next, in order of virtual time
instance.py  one real engine under a clock of its own
inline.py    what a thread beside an engine does, on that clock too
scoring.py   rewards, and the workers that a real run would have waited for
emulated.py  the driver: real engines, real tokens, virtual time
run.py       a whole run of it: config.yaml, metrics, journal, traces, figure
"""
