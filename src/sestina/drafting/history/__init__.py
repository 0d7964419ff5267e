"""What a prompt was answered the last time it was asked: the drafts of RhymeRL's HistoSpec (arXiv 2508.18588, 4).

answers.py     the responses of one prompt with their weights, and the bytes that they are kept and sent as
store.py       the records of all prompts, in memory up to a limit and on the disk beyond it
checkpoint.py  a store as one file
"""
