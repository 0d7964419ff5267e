"""What every list of figures must be."""

import math


def by_name(figures):
    """Return values by name after checking that the figures are well-formed."""
    for figure in figures:
        assert math.isfinite(figure.value)
        assert figure.unit
        assert (figure.must is None) == (figure.met is None)
    found = {figure.name: figure for figure in figures}
    assert len(found) == len(figures), "a name occurs twice"
    return found
