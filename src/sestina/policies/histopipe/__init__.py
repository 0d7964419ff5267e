"""Balance across steps by what prompts did an epoch ago (RhymeRL, section 5): pure planning, by plain functions.

layout.py     prompts into ranking groups by length, and groups onto workers, up one step and down the next
workers.py    how many workers each ranking group gets
migration.py  which responses leave a group that they hold up, and where they go
"""
