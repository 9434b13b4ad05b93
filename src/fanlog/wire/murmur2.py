"""Kafka's hash of a record's key, by which every door picks the partition."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32 bits that Kafka's clients compute, as a number that is not negative."""
    size = len(data)
    value = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        part = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        part = part * _M & _MASK
        part ^= part >> 24
        part = part * _M & _MASK
        value = value * _M & _MASK ^ part
    rest = size & 3
    if rest:
        tail = 0
        for place in range(rest):
            tail |= data[whole + place] << (8 * place)
        value = (value ^ tail) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
