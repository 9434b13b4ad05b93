"""A look at what is stored: record batches as the broker sends them, without a client in between.

Clients hide the batch: its compression, its producer id and its sequence numbers. This module speaks just
enough of the protocol (Fetch version 4, Produce version 3, both of the plain old encoding) to see a
partition's batches, and to send one again byte by byte, as a client does whose answer was lost.
"""

import socket
import struct
from dataclasses import dataclass

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_HEAD = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Batch:
    """The header of a record batch (magic 2), and all of its bytes."""

    base_offset: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    content: bytes

    @property
    def compression(self) -> str:
        return COMPRESSIONS[self.attributes & 7]


def _text(text: str) -> bytes:
    return struct.pack(f">h{len(text)}s", len(text), text.encode())


def _call(bootstrap: str, api: int, version: int, body: bytes) -> bytes:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        request = struct.pack(">hhi", api, version, 1) + _text("raw") + body
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(size)
    assert answer[:4] == struct.pack(">i", 1), "an answer to another request"
    return answer[4:]


def fetch(bootstrap: str, topic: str, partition: int = 0, offset: int = 0) -> list[Batch]:
    """The batches of a partition from `offset` on, up to some megabytes."""
    size = 50 << 20
    body = struct.pack(">iiiib", -1, 100, 1, size, 0)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iiqi", 1, partition, offset, size)
    answer = _call(bootstrap, 1, 4, body)
    # throttle time, one topic with its name, one partition: number, error, high watermark, last stable
    # offset, aborted transactions (none: null or empty), records
    at = 4 + 4 + 2 + len(topic) + 4
    _, error, _, _, _, length = struct.unpack_from(">ihqqii", answer, at)
    assert error == 0, f"error {error}"
    at += struct.calcsize(">ihqqii")
    return _batches(answer[at : at + length])


def _batches(records: bytes) -> list[Batch]:
    batches = []
    at = 0
    while at + _HEAD.size <= len(records):
        base, length, _, magic, _, attributes, _, _, _, producer, epoch, sequence, count = _HEAD.unpack_from(
            records, at
        )
        assert magic == 2
        content = records[at : at + 12 + length]
        batches.append(Batch(base, attributes, producer, epoch, sequence, count, content))
        at += 12 + length
    return batches


def produce(bootstrap: str, topic: str, batch: bytes, partition: int = 0) -> tuple[int, int]:
    """Send a batch as it is; the error code and the base offset of the answer."""
    body = struct.pack(">hhi", -1, -1, 10_000)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    answer = _call(bootstrap, 0, 3, body)
    _, error, base_offset = struct.unpack_from(">ihq", answer, 4 + 2 + len(topic) + 4)
    return error, base_offset
