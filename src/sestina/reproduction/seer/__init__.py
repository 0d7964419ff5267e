"""Seer v3 (arXiv 2511.14617v3), three models, by simulation.

published.py   what the paper says
tasks.py       its workloads as simulated worlds
rollouts.py    a system's iterations, in the mean
spread.py      the one parameter of a workload that is fitted
cells.py       published values beside predicted ones
"""
