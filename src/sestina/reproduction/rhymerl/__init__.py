"""RhymeRL: what ranking by the last epoch and drafting from it are worth, in simulated worlds.

published.py  the paper's values
worlds.py     the workload as worlds, the trainer and the spread of lengths fitted to the baseline
drafting.py   how long drafts are under the paper's window, and what they yield
systems.py    the baseline, RhymeRL by parts and AReaL, and their throughput
ranks.py      how prompts' ranks change, and what migrates for it
cells.py      the tables
"""
