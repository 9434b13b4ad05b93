"""The four codecs that a record batch may carry, by the number in its attributes.

Batches are kept as they came; this is for looking inside. Every call has a limit on what may come out, so
that a small batch cannot ask for all of the memory.
"""

import struct
from typing import Final

import cramjam

from fanlog.wire.records import BatchError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

# Java's clients write snappy in blocks behind this header, everybody else writes one bare block.
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16


def decompress(codec: int, data: bytes | memoryview, bytes_max: int) -> bytes:
    """What `data` holds, or BatchError: not in that codec, or more than `bytes_max`."""
    try:
        if codec == SNAPPY:
            return _unsnap(bytes(data), bytes_max)
        stream = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
        # Most batches shrink by less than this; what shrinks more is given more room, up to the limit.
        room = min(max(len(data) * 8, 65536), bytes_max)
        while True:
            target = bytearray(room)
            try:
                size = stream.decompress_into(data, target)
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise
                if room >= bytes_max:
                    raise BatchError(f"more than {bytes_max} bytes of records") from None
                room = min(room * 16, bytes_max)
            else:
                return bytes(memoryview(target)[:size])
    except BatchError:
        raise
    except Exception as error:
        raise BatchError(f"the records do not decompress as {NAMES.get(codec, codec)}: {error}") from None


def compress(codec: int, data: bytes) -> bytes:
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == NONE:
        return data
    return bytes({GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec].compress(data))


def _unsnap(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _unsnap_block(data, bytes_max)
    blocks = []
    at = _XERIAL_HEADER_BYTES
    left = bytes_max
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if size < 0 or at + size > len(data):
            raise BatchError("a snappy block reaches past its batch")
        blocks.append(_unsnap_block(data[at : at + size], left))
        left -= len(blocks[-1])
        at += size
    return b"".join(blocks)


def _unsnap_block(block: bytes, bytes_max: int) -> bytes:
    # A bare block begins with its size: a lie is found before anything is allocated.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > bytes_max:
        raise BatchError(f"{size} bytes of records, the limit is {bytes_max}")
    return bytes(cramjam.snappy.decompress_raw(block))
