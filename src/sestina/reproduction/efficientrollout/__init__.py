"""EfficientRollout (arXiv 2606.18967v1), three models, in closed form.

published.py   what the paper and its repository say
timeline.py    a rollout as batches over tokens, and what it takes with drafts
cells.py       published values beside predicted ones
"""
