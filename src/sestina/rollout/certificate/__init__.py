"""A certificate: decoding with drafts, chunks and migration against decoding without, on one model.

asked.py   what is decoded
pairs.py   the engines of one way of decoding
decode.py  requests decoded whole, or in chunks that change engines
checks.py  what is held against what: bits, tokens of the same noise, or distributions and logprobs
page.py    the verdict as one page
"""
