"""Reinforcement learning of long-reasoning language models in which the rollout is fast."""
