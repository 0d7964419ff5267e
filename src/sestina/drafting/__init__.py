"""Speculative drafts out of what the responses of a group have in common."""
