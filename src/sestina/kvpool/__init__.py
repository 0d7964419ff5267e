"""Keys and values of requests between two chunks, where other instances find them.

config.py    what a user sets
folder.py    a folder that the processes of a run share, and that goes with the last of them
entry.py     the file of one request: header, checksums, pages
pool.py      what an engine needs of any of them
tally.py     bytes held by each tier, one count for all processes, and their lock
arena.py     the entries in shared memory; native/ finds, copies and checks them
memory.py    what a process may do with them: take room, find them, take them out
blocks.py    what is then its own: filled, put into pages, extended, given back
shelf.py     the files on the SSD
promotion.py from the SSD to memory
tiers.py     both of them, and how room is made there: policies/kv_pool decides what leaves
local.py     the pool of a node: shared memory and SSD within limits
mooncake.py  the pool of a run over nodes: Mooncake's store
master.py    the process that a Mooncake store is kept together by
"""
