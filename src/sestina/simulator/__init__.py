"""Runs without their ranks: the planner, journal and admission of a real run under virtual clocks.

agenda.py      what happens next, in order of virtual time
scoring.py     rewards, and the workers that a real run would have waited for
run.py         a whole run: config.yaml, metrics, journal, traces, figure
pipeline.py    a step rolled out while a trainer with a clock of its own takes the one before
asked.py       admission of asynchronous training, asked for a batch whenever something happened

Emulated: real engines and tokens.
clock.py       time that passes only while something works, by as much as that really took
instance.py    one real engine under a clock of its own
engines.py     all of them from a configuration, and what moves their clocks: what steps take, or a calibration
inline.py      what a thread beside an engine does, on that clock too
emulated.py    the driver
trainer.py     a real trainer, whose time is shared out
training.py    the loop: batch, step, weights, evaluation
emulated_pipeline.py  the loop where a step is rolled out while the one before trains

Simulated: neither, and times from a cost model.
cost/          what engines, trainers and links take
lengths.py     response lengths, heavy-tailed and alike within groups
workload.py    what a step rolls out: drawn, or recorded
acceptance.py  what drafts yield
yields.py      the same of each response of a recorded run
chunk.py, response.py, prefixes.py, resume.py  requests, and where their keys and values lie
fluid.py, progress.py  an instance that advances in closed form
feed.py        what is offered to the planner
simulated.py   the driver
ahead.py       the loop where rollout goes on while the trainer works
step_ahead.py  the loop where it does so for one step, ranked by the last epoch
world.py, hardware.py  all of it from a configuration
rollouts.py, outcome.py, compare.py            one scheduler's steps; metrics; schedulers side by side
prediction.py  a few steps of a run, and only their means
advice/        the configuration that a user's GPUs are best used with
"""
