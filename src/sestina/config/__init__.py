"""The configuration of a run: one strict loader into frozen dataclasses; imports no torch.

run.py          the dataclasses, composed of those beside the code they configure
schema.py       the same as data: which keys there are and what each allows
arguments.py    the user's command line -> Hydra's
plain.py        what Hydra composed -> plain dictionaries
load.py         plain dictionaries -> RunConfig, or every violation in one error
rule.py         what a rule between keys is
rules.py        demands on one key that depend on others; cluster_rules.py those about clusters, model_rules.py those
                about how a model is shared out
fit.py          whether a run fits its GPUs' memory
cluster.py      what a user sets about a cluster; devices.py which GPUs of a node a rank uses
sweep.py        a command line -> every run it asks for
resolved.py     RunConfig -> a file in the run directory, and back
fingerprint.py  what a resumed run may change
"""
