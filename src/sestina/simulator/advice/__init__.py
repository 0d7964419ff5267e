"""Which configuration a user's GPUs are best used with, by simulation.

axes.py    what is varied
descent.py the search: one axis after the other, until none helps
judge.py   what is refused, what is passed over, what a point is predicted to take
advise.py  all of it, and what is left of it
table.py   the best as a table, a Parquet file and overrides
"""
