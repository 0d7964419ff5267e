"""The papers' tables, predicted by simulation.

cell.py               a published value beside what was predicted of it
papers.py             what is predicted, by paper
areal.py              AReaL v5, simulated
rhymerl/              RhymeRL, simulated
seer/                 Seer v3, simulated
efficientrollout/     EfficientRollout, in closed form
rollouts.py           what rollouts of a system come to, in the mean
spread.py             the spread of lengths that is fitted to a baseline
verdict.py            what all cells come to
terminal.py, page.py  cells on the terminal, and as a part of docs/reproduction.md
written.py, figures/  cells as a file, and what analysis/reproduction.ipynb draws of them
"""
