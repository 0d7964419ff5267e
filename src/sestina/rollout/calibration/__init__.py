"""Calibration: what steps of this engine on this device take, measured over a grid and fitted.

grid.py      batches, contexts and draft lengths, chunks that join; what there is no room for
forced.py    a speculator that drafts as many tokens as it is told
passes.py    times of plain steps, of verification and of steps that chunks join, in the engine as it serves
products.py  the rate of the model's matrix products
lookups.py   times of drafting out of a suffix index
survey.py    all points, in rounds
file.py      the file of a calibration: written, strictly read, held to the engine that is to use it
"""
