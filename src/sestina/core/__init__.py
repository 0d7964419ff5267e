"""Identifiers, units, errors and contracts shared by every layer; stdlib, numpy and annotated_types only."""
