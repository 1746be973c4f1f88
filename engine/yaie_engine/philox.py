"""Philox4x32-10: random numbers as a pure function of (key, counter), so that no order of calls can change them.

Algorithm: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), the Random123 library.
A draw of the sampler has key = seed (64 bits) and counter = (choice index, output position, 0, 0).
So requests with equal prompt, parameters and seed give equal text whatever runs beside them; the choices of one request
differ by their index; and one seed for many different prompts gives all of them the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MASK64 = 2**64 - 1
_SEED_TAG = 0x53454544
"""Third counter word of derived seeds: keeps them apart from the draws of a request with the engine's own seed."""


def philox4x32(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The 10-round bijection of `counter` [n, 4] under `key` [n, 2]; every word is 32 bits in uint64."""
    c0, c1, c2, c3 = counter.T
    k0, k1 = key.T
    for _ in range(_ROUNDS):
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (high >> _SHIFT) ^ c1 ^ k0, high & _LOW, (low >> _SHIFT) ^ c3 ^ k1, low & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack((c0, c1, c2, c3), axis=1)


def uniform(seeds: Sequence[int], indices: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
    """One number in [0, 1) per (seed, choice index, output position): float32 [n] with 24 random bits.

    Seeds are taken modulo 2**64, so -1 and 2**64 - 1 are the same seed.
    """
    counter = np.zeros((len(seeds), 4), dtype=np.uint64)
    counter[:, 0] = np.asarray(indices, dtype=np.uint64)
    counter[:, 1] = np.asarray(positions, dtype=np.uint64)
    words = philox4x32(counter, _keys(seeds))
    return ((words[:, 0] >> np.uint64(8)).astype(np.float32)) * np.float32(2.0**-24)


def derive_seed(engine_seed: int, serial: int) -> int:
    """The 64-bit seed of request number `serial` that gave none of its own."""
    counter = np.zeros((1, 4), dtype=np.uint64)
    counter[0, :3] = serial & 0xFFFFFFFF, (serial >> 32) & 0xFFFFFFFF, _SEED_TAG
    words = philox4x32(counter, _keys([engine_seed]))[0]
    return int(words[0]) | int(words[1]) << 32


def _keys(seeds: Sequence[int]) -> NDArray[np.uint64]:
    key = np.empty((len(seeds), 2), dtype=np.uint64)
    whole = np.array([seed & _MASK64 for seed in seeds], dtype=np.uint64)
    key[:, 0], key[:, 1] = whole & _LOW, whole >> _SHIFT
    return key
