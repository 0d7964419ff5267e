"""Rewards: rules and the worker processes that apply them."""
