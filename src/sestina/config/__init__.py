"""The configuration of a run: one strict loader into frozen dataclasses; imports no torch."""
