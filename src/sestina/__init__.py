"""Reinforcement learning of long-reasoning language models in which the rollout is fast."""

from sestina.blas import choose_sums

# For every process of a run alike: ranks that train and ranks that decode have to multiply in the same way.
choose_sums()
