"""Reward functions of test runs."""

import time


def even(prompt, response, label, meta):
    """Half of all responses are right, whatever they say."""
    return float(len(response) % 2 == 0)


def moody(prompt, response, label, meta):
    """Fails in every way a function can, depending on the response."""
    match len(response) % 5:
        case 0:
            raise RuntimeError("bad mood")
        case 1:
            return float("nan")
        case n:
            return float(n % 2)


def slow(prompt, response, label, meta):
    """Takes longer than the test that waits for it."""
    time.sleep(45)
    return 1.0


def broken(prompt, response, label, meta):
    """Never gives a reward."""
    raise RuntimeError("out of order")
