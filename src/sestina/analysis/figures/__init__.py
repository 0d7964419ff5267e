"""One figure a file; each is a function of runs that returns a `Picture`."""
