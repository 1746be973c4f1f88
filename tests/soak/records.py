"""Row 12: records of the prefix store that were cut, changed, joined or are of another version."""

from __future__ import annotations

import random

from tests.store.test_record import BODY, decode, whole
from yaie_engine.store.record import DamagedRecordError

from .figure import Figure


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One of the things that happen to files."""
    at, end = sorted((chance.randrange(len(data)), chance.randrange(1, len(data) + 1)))
    kind = chance.randrange(5)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes(end - at) + data[end:]
    if kind == 2:
        return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
    if kind == 3:
        return data[:at] + data[end:]
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def damaged_records(size: int, seed: int) -> Figure:
    """Every place at which a record can be cut, then `size` random damages."""
    chance, data = random.Random(seed), whole()
    tried = [data[:length] for length in range(len(data))]
    tried += [damaged(data, chance) for _ in range(min(size, 5000))]
    accepted, refused, same, left = [], 0, 0, size
    while tried:
        for each in tried:
            if each == data:
                same += 1
                continue
            try:
                _, body = decode(each)
            except DamagedRecordError:
                refused += 1
            except Exception as error:
                accepted.append(f"{type(error).__name__} instead of a refusal: {each[:80].hex()}")
            else:
                accepted.append(f"accepted {len(each)} bytes, body {'equal' if body == BODY else 'changed'}")
        left -= 5000
        tried = [damaged(data, chance) for _ in range(min(max(left, 0), 5000))]
    return Figure(
        f"{refused + len(accepted):,} records", f"{len(accepted)} accepted, {refused:,} refused", tuple(accepted)
    )
