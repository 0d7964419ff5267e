"""Figures of predicted tables, one a file."""
