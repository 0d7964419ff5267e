"""Weight updates from the trainer to the rollout ranks: sender and receiver in one place.

rendezvous.py  where the ranks of a group find each other
group.py       the group that broadcasts
update.py      an update: buckets, then a trailer with version and checksums; publish and receive
buffer.py      updates that arrive while chunks run
"""
