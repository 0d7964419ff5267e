"""Counter-based sampling noise (docs/decisions/0003): nothing but weights, text, identity and seed decides a token.

Entry v of the vocabulary, at one position of one request, gets a standard exponential E_v that is a pure function of
(key, position, v); the token drawn is argmin E_v / p_v. With g_v = -log E_v this is Gumbel-max, argmax log p_v + g_v.
The generator is SplitMix64 (Steele, Lea, Flood 2014): `mix` is its finaliser, GOLDEN its increment.

Three implementations answer alike: this one (the definition, in numpy), `rollout/native` (CPU) and `rollout/ops_torch`
(any device).
"""

import numpy as np
import numpy.typing as npt

from sestina.core.ids import RequestId

GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(z: int) -> int:
    """Return a 64-bit bijection of z (0 <= z < 2**64) whose output bits all depend on all input bits."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def derive(seed: int, *names: int) -> int:
    """Return the 64-bit key of a path of integers below `seed`; different paths give unrelated keys."""
    key = mix((seed + GOLDEN) & _MASK)
    for name in names:
        key = mix((key + (name + 1) * GOLDEN) & _MASK)
    return key


def request_key(seed: int, request: RequestId) -> int:
    """Return the noise key of one response of a run."""
    return derive(seed, request.group, request.sample)


def exponentials(key: int, position: int, vocab: int) -> npt.NDArray[np.float64]:
    """Return E_v for v < vocab at one position (the index, in the whole sequence, of the last known token)."""
    row = derive_position(key, position)
    counters = np.arange(1, vocab + 1, dtype=np.uint64)
    z = np.uint64(row) + counters * np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    uniform = ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(uniform)


def derive_position(key: int, position: int) -> int:
    """Return the key of one position of a request."""
    return mix((key + (position + 1) * GOLDEN) & _MASK)
