"""Identifiers, units, errors and contracts shared by every layer; stdlib and numpy only."""
