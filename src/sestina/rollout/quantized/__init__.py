"""A drafter that is the model itself on rounded weights (EfficientRollout, arXiv 2606.18967).

rounding.py   round-to-nearest in 4 or 8 bits
products.py   matrix products by rounded weights: PyTorch's packed kernels, or weights written out
choice.py     which of them this device is faster with
model.py      the model on them, in the same KV cache; requantised in place
speculator.py drafts, and draws the tokens of what they are verified by
rejection.py  exact rejection sampling
decisions.py  when to draft how much
"""
