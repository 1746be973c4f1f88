"""Philox4x32-10: random numbers as a pure function of (key, counter), so that no order of calls can change them.

Algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), the Random123 library.
A draw of the sampler has key = seed (64 bits) and counter = (choice index, output position, 0, 0).
So requests with equal prompt, parameters and seed give equal text whatever runs beside them; the choices of one request
differ by their index; and one seed for many different prompts gives all of them the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Word = TypeVar("Word", int, NDArray[np.integer[Any]])

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_MASK64 = 2**64 - 1
_SEED_TAG = 0x53454544
"""Third counter word of derived seeds: keeps them apart from the draws of a request with the engine's own seed."""


def philox4x32(counter: tuple[Word, Word, Word, Word], key: tuple[Word, Word]) -> tuple[Word, Word, Word, Word]:
    """The 10-round bijection of `counter` under `key`; every word is 32 bits, in an int or in uint64 arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & _LOW, (low >> 32) ^ c3 ^ k1, low & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def uniform(seeds: Sequence[int], indices: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
    """One number in [0, 1) per (seed, choice index, output position): float32 [n] with 24 random bits.

    Seeds are taken modulo 2**64, so -1 and 2**64 - 1 are the same seed.
    """
    keys = np.array([seed & _MASK64 for seed in seeds], dtype=np.uint64)
    index, position = np.asarray(indices, dtype=np.uint64), np.asarray(positions, dtype=np.uint64)
    rest = np.zeros_like(keys)
    word = philox4x32((index, position, rest, rest), (keys & _LOW, keys >> 32))[0]
    return (word >> 8).astype(np.float32) * np.float32(2.0**-24)


def derive_seed(engine_seed: int, serial: int) -> int:
    """The 64-bit seed of request number `serial` that gave none of its own."""
    key = engine_seed & _MASK64
    words = philox4x32((serial & _LOW, (serial >> 32) & _LOW, _SEED_TAG, 0), (key & _LOW, key >> 32))
    return words[0] | words[1] << 32
