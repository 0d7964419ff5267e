"""What a pool of keys and values decides, without touching any: pure.

room.py  what leaves the pool so that more fits, and which tier takes it
cost.py  whether moving keys and values is predicted to be cheaper than computing them again
"""
