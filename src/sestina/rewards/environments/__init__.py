"""What answers a model between its turns, by the workers that also score: text instead of a number.

config.py      what a user sets
calculator.py  the one that is built in
"""
