"""Keys and values of requests between two chunks, where any instance of a node finds them.

config.py   what a user sets
folder.py   a folder that the processes of a run share, and that goes with the last of them
entry.py    the file of one request: header, checksums, pages
tally.py    bytes held by each tier, one count for all processes
shelf.py    the files of one tier
local.py    the pool: shared memory and SSD within limits; policies/kv_pool decides what leaves
"""
