"""Objectives: tensors in, tensors out; no process groups."""
