"""The generator against the published vectors, and the properties the engine builds on."""

from __future__ import annotations

import numpy as np
import pytest

from yaie_engine.philox import derive_seed, philox4x32, uniform

# Known answers of the Random123 distribution: counter, key, result.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert philox4x32(counter, key) == expected  # type: ignore[type-var]
    arrays = [np.array([word, 0], dtype=np.uint64) for word in (*counter, *key)]
    words = philox4x32(tuple(arrays[:4]), tuple(arrays[4:]))  # type: ignore[arg-type]
    assert all(word.dtype == np.uint64 for word in words) and tuple(int(word[0]) for word in words) == expected


def test_vectorised_equals_one_by_one() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, (6, 50), dtype=np.uint64)
    together = philox4x32(tuple(words[:4]), tuple(words[4:]))  # type: ignore[arg-type]
    alone = [philox4x32(tuple(one[:4]), tuple(one[4:])) for one in words.T.tolist()]
    assert np.array_equal(np.stack(together, axis=1), np.array(alone))


def test_uniform_is_float32_in_the_half_open_interval() -> None:
    values = uniform([7] * 20_000, [0] * 20_000, list(range(20_000)))
    assert values.dtype == np.float32
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01
    counts, _ = np.histogram(values, bins=16, range=(0, 1))
    assert ((counts - 1250) ** 2 / 1250).sum() < 45  # chi-square, 15 degrees of freedom, p about 1e-4


def test_seed_index_and_position_each_matter() -> None:
    base = uniform([1], [0], [0])[0]
    assert uniform([2], [0], [0])[0] != base
    assert uniform([1], [1], [0])[0] != base
    assert uniform([1], [0], [1])[0] != base


def test_seeds_are_64_bits() -> None:
    assert uniform([-1], [0], [0])[0] == uniform([2**64 - 1], [0], [0])[0]
    assert uniform([2**63], [0], [0])[0] != uniform([0], [0], [0])[0]


def test_derived_seeds_differ_and_repeat() -> None:
    seeds = [derive_seed(0, serial) for serial in range(2000)]
    assert len(set(seeds)) == 2000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert seeds == [derive_seed(0, serial) for serial in range(2000)]
    assert derive_seed(1, 5) != derive_seed(0, 5)
