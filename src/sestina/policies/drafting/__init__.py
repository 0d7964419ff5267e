"""How long drafts are and whether to draft at all: asked once per engine step, told once what the step did.

step.py        what a step looks like, what is decided about it, what became of it
cost.py        the closed form of step times; measured.py corrects it by what steps took
serving.py     what chunks add to the steps that they join
calibration.py  that form fitted to steps of one engine, with those steps; fit.py fits it
acceptance.py  which share of drafts is accepted, by position
forecast.py    what a step with given draft lengths is expected to take and to produce
lengths.py     the Protocol of length policies, and `fixed`; thresholds.py, mba.py, aimd.py, ladder.py are the others
toggles.py     `always`, `batch`, `roofline`
guard.py       never slower than plain decoding by more than a stated share, exploration included
policy.py      composes them: `plan`, `learn`
"""
