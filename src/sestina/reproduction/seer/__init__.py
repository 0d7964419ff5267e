"""Seer v3 (arXiv 2511.14617v3), three models, by simulation.

published.py   what the paper says
tasks.py       its workloads as simulated worlds
replicas.py    an instance whose attention is replicated
cells.py       published values beside predicted ones
"""
