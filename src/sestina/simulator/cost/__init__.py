"""What engines, trainers and links take, in closed form; pure.

step.py        decoding and prefill of one instance: the step cost of drafting's calibration, and experts
span.py        many steps at once, while contexts grow
roofline.py    a step cost from a model's shape, its parallelism and a GPU
calibrated.py  a step cost measured by launch/calibrate.py
moves.py       keys and values between memories, weights to engines
training.py    an optimizer batch, from its packed tokens
"""
