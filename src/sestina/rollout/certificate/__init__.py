"""A certificate: decoding with drafts, chunks and migration against decoding without, on one model.

asked.py   what is decoded
decode.py  requests decoded whole, or in chunks that change engines
checks.py  what is held against what: tokens where noise is coupled, distributions and logprobs where sums differ
page.py    the verdict as one page
"""
