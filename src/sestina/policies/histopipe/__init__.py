"""Balance across steps by what prompts did an epoch ago (RhymeRL, section 5): plans by plain functions, a scheduler.

layout.py     prompts into ranking groups by length, and groups onto workers, up one step and down the next
workers.py    how many workers each ranking group gets
migration.py  which responses leave a group that they hold up, and where they go
profile.py    what a worker's part of a batch takes, learnt from those it has seen
batch.py      a batch as it lies on the workers
scheduler.py  all of it behind `Scheduler`
"""
