"""What a partition notes beside its segments, so that recovery need not read them all.

The checkpoint says: everything before this place is durable, and these are the producers as of there. It is
written after the segment and its index have been synced, replaced whole, and carries its own checksum. If
it is missing or damaged, recovery reads the whole log instead and finds the same.
"""

import struct
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from fanlog.log.disk import Disk
from fanlog.log.producers import Saved

NAME: Final = "checkpoint"


class Checkpoint(msgspec.Struct):
    # Records below this were removed on purpose.
    log_start: int
    # The segment that was being written, how much of it is durable, and the offset that comes next there.
    segment: int
    position: int
    next_offset: int
    index_entries: int
    max_timestamp: int
    producers: list[Saved]


def save(directory: Path, checkpoint: Checkpoint, disk: Disk) -> None:
    body = msgspec.msgpack.encode(checkpoint)
    disk.replace(directory / NAME, struct.pack(">I", crc32c(body)) + body)


def load(directory: Path) -> Checkpoint | None:
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < 4 or struct.unpack(">I", data[:4])[0] != crc32c(data[4:]):
        return None
    try:
        return msgspec.msgpack.decode(data[4:], type=Checkpoint)
    except msgspec.DecodeError:
        return None
