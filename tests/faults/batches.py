"""Record batches for the fuzz test, good and bad: the bad ones carry a valid checksum over nonsense.

A broker that looks only at the checksum would store them, and every consumer of the topic would choke.
"""

import random
import struct
from collections.abc import Callable

import cramjam
from crc32c import crc32c

_CHECKED = struct.Struct(">hiqqqhii")


def varint(number: int) -> bytes:
    """Zig-zag, as in records."""
    number = (number << 1) ^ (number >> 63)
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def record(delta: int, value: bytes = b"value", key: bytes | None = b"key") -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    records: bytes,
    count: int,
    *,
    attributes: int = 0,
    last_delta: int | None = None,
    timestamp: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
    crc_error: int = 0,
    length_error: int = 0,
) -> bytes:
    last = count - 1 if last_delta is None else last_delta
    checked = _CHECKED.pack(attributes, last, timestamp, timestamp, *producer, count) + records
    crc = crc32c(checked) ^ crc_error
    return struct.pack(">qiibI", 0, len(checked) + 9 + length_error, -1, magic, crc) + checked


def _records(count: int) -> bytes:
    return b"".join(record(delta) for delta in range(count))


_COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    1: lambda data: bytes(cramjam.gzip.compress(data)),
    2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    3: lambda data: bytes(cramjam.lz4.compress(data)),
    4: lambda data: bytes(cramjam.zstd.compress(data)),
}
# Compresses a thousandfold or more: a batch well below the size limit that would fill 64 MB of memory.
_ZEROS = bytes(64 << 20)
_BOMBS = {codec: _COMPRESS[codec](_ZEROS) for codec in (1, 4)}
del _ZEROS


def good(chance: random.Random) -> bytes:
    count = chance.choice((1, 1, 2, 5))
    codec = chance.choice((0, 0, 1, 2, 3, 4))
    records = _records(count)
    return batch(_COMPRESS[codec](records) if codec else records, count, attributes=codec)


def _bad_records(chance: random.Random) -> bytes:
    """Records that are not what they say, under a checksum that is right."""
    start, no_key, no_value = b"\0" + varint(0) + varint(0), varint(-1), varint(-1)
    bodies = [
        start + varint(1 << 29) + b"x" * 30,  # a key that reaches past the batch
        start + varint(-5) + no_value + varint(0),
        start + no_key + varint(-5) + varint(0),
        start + no_key + no_value + varint(5),  # headers that are not there
        start + no_key + no_value + b"\xff\xff\xff\xff\x0f",
        start + no_key + no_value + varint(-1),
        start + no_key + no_value + varint(1) + varint(-1) + varint(0),  # a header without a name
        start + no_key + no_value + varint(1) + varint(1) + b"n" + varint(-5),
        b"\0" + b"\x80" * 30 + b"\0" + varint(0) + no_key + no_value + varint(0),  # an endless timestamp
        b"\0" + varint(0) + varint(-1) + no_key + no_value + varint(0),  # offsets before its batch's
        b"\0" + varint(0) + varint(7) + no_key + no_value + varint(0),
    ]
    bad = [
        *(varint(len(body)) + body for body in bodies),
        varint(-1),
        varint(0),
        varint(1 << 30) + b"\0" * 20,
        b"\xff" * 12,
        record(0)[:-3],
        record(0) + b"trailing",
        chance.randbytes(chance.randrange(1, 200)),
        b"",
    ]
    records = chance.choice(bad)
    codec = chance.choice((0, 0, 0, 1, 2, 3, 4))
    return batch(_COMPRESS[codec](records) if codec else records, 1, attributes=codec)


def _bad_header(chance: random.Random) -> bytes:
    records = _records(2)
    choices: list[Callable[[], bytes]] = [
        lambda: batch(records, 2, crc_error=1),
        lambda: batch(records, 3),
        lambda: batch(records, 1),
        lambda: batch(records, 0),
        lambda: batch(records, -1),
        lambda: batch(records, (1 << 31) - 1),
        lambda: batch(records, 2, last_delta=(1 << 31) - 1),
        lambda: batch(records, 2, last_delta=-1),
        lambda: batch(records, 2, magic=chance.choice((0, 1, 3, -1))),
        lambda: batch(records, 2, attributes=chance.choice((5, 6, 7, 0x7FFF, -1))),
        lambda: batch(records, 2, attributes=chance.choice((0x10, 0x20, 0x30))),  # transactional, control
        lambda: batch(records, 2, attributes=chance.choice((1, 2, 3, 4))),  # says compressed, is not
        lambda: batch(records, 2, length_error=chance.choice((-1, 1, -61, 1 << 20, -(1 << 30)))),
        lambda: batch(records, 2, timestamp=chance.choice((-1, -(1 << 63), (1 << 63) - 1))),
        lambda: batch(
            records, 2, producer=(chance.randrange(20), chance.randrange(-2, 3), chance.randrange(-2, 9))
        ),
        lambda: batch(records, 2)[: chance.randrange(80)],
        lambda: batch(records, 2) + batch(records, 2),
        lambda: batch(records, 2) + b"behind",
        lambda: b"",
    ]
    return chance.choice(choices)()


def _bomb(chance: random.Random) -> bytes:
    codec = chance.choice((1, 4))
    return batch(_BOMBS[codec], 1, attributes=codec)


def any_batch(chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.3:
        return good(chance)
    if kind < 0.6:
        return _bad_records(chance)
    if kind < 0.98:
        return _bad_header(chance)
    return _bomb(chance)
