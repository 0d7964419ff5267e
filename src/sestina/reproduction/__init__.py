"""The papers' tables, predicted by simulation.

cell.py    a published value beside what was predicted of it
"""
