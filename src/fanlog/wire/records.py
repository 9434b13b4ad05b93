"""Kafka's record batch, magic 2: the one format on disk, on the links and in the Kafka protocol.

A batch is a header of 61 bytes and, behind it, its records, compressed or not. The first 21 bytes of the
header (base offset, length, leader epoch, magic, CRC) are outside the checksum, so that a broker can put
a batch in its place in the log without touching anything else: `placed` gives the 16 bytes to write
in front of the rest.

This module is compiled by mypyc where a C compiler is found, and runs as it is where there is none. It walks
records by hand, because it runs once per record: on the way in to see that a batch holds what its header
says, and on the way out where a protocol needs single records.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

HEADER_BYTES: Final = 61
# What comes before `length` counts: the base offset and the length itself.
OVERHEAD_BYTES: Final = 12
_CRC_FROM: Final = 21
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PLACE: Final = struct.Struct(">qii")
_CHECKED: Final = struct.Struct(">hiqqqhii")

COMPRESSION_MASK: Final = 0x07
APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
NO_TIMESTAMP: Final = -1
NO_PRODUCER: Final = -1


class BatchError(Exception):
    """A batch that is not what its header, its checksum or its topic says it should be."""


class BadChecksum(BatchError):
    """The batch was damaged on its way."""


class Header(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_header(data: bytes | memoryview, at: int = 0) -> Header:
    """The header of the batch that begins at `at`. The caller has seen to it that it is there whole."""
    return Header(*_HEADER.unpack_from(data, at))


def checksum(batch: bytes | memoryview) -> int:
    crc: int = crc32c(memoryview(batch)[_CRC_FROM:])
    return crc


def placed(header: Header, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch once it has its place in a log."""
    return _PLACE.pack(base_offset, header.length, leader_epoch)


def stamped(batch: bytes, header: Header, now_ms: int) -> bytes:
    """The batch with the broker's time instead of the producer's (`message.timestamp.type`)."""
    checked = _CHECKED.pack(
        header.attributes | APPEND_TIME_FLAG,
        header.last_offset_delta,
        header.base_timestamp,
        now_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    tail = checked + batch[HEADER_BYTES:]
    return batch[:17] + struct.pack(">I", crc32c(tail)) + tail


def check_header(batch: bytes) -> Header:
    """The header of a batch that fills `batch`, after all that can be said without reading its records."""
    if len(batch) < HEADER_BYTES:
        raise BatchError(f"a batch has at least {HEADER_BYTES} bytes, this has {len(batch)}")
    header = read_header(batch)
    if header.magic != 2:
        raise BatchError(f"magic {header.magic} is not supported, only 2")
    if header.length + OVERHEAD_BYTES != len(batch):
        raise BatchError(
            f"one batch of {len(batch)} bytes was expected, its header says {header.length + 12}"
        )
    if checksum(batch) != header.crc:
        raise BadChecksum("the checksum does not match")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise BatchError(
            f"{header.record_count} records do not end at offset delta {header.last_offset_delta}"
        )
    if header.attributes & COMPRESSION_MASK > 4:
        raise BatchError(f"there is no compression {header.attributes & COMPRESSION_MASK}")
    return header


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag variable-length integer and the place behind it."""
    shift = 0
    value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise BatchError("a varint of more than ten bytes")


def check_records(data: bytes, at: int, count: int, keys_needed: bool) -> None:
    """Walks `count` records that begin at `at` and must fill `data`; raises BatchError where they do not."""
    try:
        for index in range(count):
            # Nearly every length fits one or two bytes; the common case is written out.
            byte = data[at]
            if byte < 0x80:
                length = byte >> 1 if byte & 1 == 0 else -1
                at += 1
            else:
                length, at = _varint(data, at)
            end = at + length
            if length < 6 or end > len(data):
                raise BatchError(f"record {index} claims {length} bytes")
            at = _check_record(data, at + 1, index, keys_needed)
            if at != end:
                raise BatchError(f"record {index} does not fill its length")
    except IndexError:
        raise BatchError("the records end before their count does") from None
    if at != len(data):
        raise BatchError(f"{len(data) - at} bytes behind the last record")


def _check_record(data: bytes, at: int, index: int, keys_needed: bool) -> int:
    """The place behind the record whose timestamp delta begins at `at`."""
    begin = at
    while data[at] >= 0x80:
        at += 1
    at += 1
    if at - begin > 10:
        raise BatchError("a varint of more than ten bytes")
    byte = data[at]
    if byte < 0x80:
        delta = byte >> 1 if byte & 1 == 0 else -1
        at += 1
    else:
        delta, at = _varint(data, at)
    if delta != index:
        raise BatchError(f"record {index} has offset delta {delta}")
    byte = data[at]
    if byte < 0x80:
        size = byte >> 1 if byte & 1 == 0 else ~(byte >> 1)
        at += 1
    else:
        size, at = _varint(data, at)
    if size > 0:
        at += size
    elif size < -1:
        raise BatchError(f"record {index} has a key of {size} bytes")
    elif size < 0 and keys_needed:
        raise BatchError(f"record {index} has no key, and its topic is compacted by key")
    byte = data[at]
    if byte < 0x80:
        size = byte >> 1 if byte & 1 == 0 else ~(byte >> 1)
        at += 1
    else:
        size, at = _varint(data, at)
    if size > 0:
        at += size
    elif size < -1:
        raise BatchError(f"record {index} has a value of {size} bytes")
    byte = data[at]
    if byte == 0:
        return at + 1
    return _check_headers(data, at, index)


def _check_headers(data: bytes, at: int, index: int) -> int:
    count, at = _varint(data, at)
    if count < 0 or count > len(data) - at:
        raise BatchError(f"record {index} claims {count} headers")
    for _ in range(count):
        size, at = _varint(data, at)
        if size < 0 or at + size > len(data):
            raise BatchError(f"record {index} has a header without a name")
        at += size
        size, at = _varint(data, at)
        if size > 0:
            at += size
        elif size < -1:
            raise BatchError(f"record {index} has a header of {size} bytes")
    return at


def decode_records(data: bytes, at: int, header: Header) -> list[Record]:
    """The records of a batch whose (decompressed) records begin at `at` of `data`."""
    records: list[Record] = []
    stamped_by_broker = header.attributes & APPEND_TIME_FLAG != 0
    try:
        for _ in range(header.record_count):
            length, at = _varint(data, at)
            end = at + length
            time_delta, at = _varint(data, at + 1)
            offset_delta, at = _varint(data, at)
            key, at = _nullable(data, at)
            value, at = _nullable(data, at)
            headers: list[tuple[str, bytes | None]] = []
            if data[at] == 0:
                at += 1
            else:
                header_count, at = _varint(data, at)
                for _ in range(header_count):
                    name, at = _nullable(data, at)
                    content, at = _nullable(data, at)
                    headers.append(((name or b"").decode("utf-8", "surrogateescape"), content))
            if at != end or end > len(data):
                raise BatchError("a record does not fill its length")
            timestamp = header.max_timestamp if stamped_by_broker else header.base_timestamp + time_delta
            records.append(Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)))
    except IndexError:
        raise BatchError("the records end before their count does") from None
    return records


def _nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    end = at + size
    if end > len(data):
        raise BatchError("a field reaches past the end of its batch")
    return data[at:end], end


def _put_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
    else:
        _put_varint(out, len(value))
        out += value


def encode_records(records: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The records of a batch, as they stand behind its header before compression."""
    out = bytearray()
    for record in records:
        one = bytearray(1)
        _put_varint(one, record.timestamp - base_timestamp)
        _put_varint(one, record.offset - base_offset)
        _put_bytes(one, record.key)
        _put_bytes(one, record.value)
        _put_varint(one, len(record.headers))
        for name, content in record.headers:
            _put_bytes(one, name.encode("utf-8", "surrogateescape"))
            _put_bytes(one, content)
        _put_varint(out, len(one))
        out += one
    return bytes(out)


def encode_batch(
    records: bytes,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of records that are encoded (and compressed, as `attributes` says) already."""
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    tail = checked + records
    length = len(tail) + _CRC_FROM - OVERHEAD_BYTES
    return struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc32c(tail)) + tail


def batch_of(
    entries: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]], now_ms: int
) -> bytes:
    """An uncompressed batch of `(key, value, headers)`, all of one moment: what the broker itself writes."""
    records = [
        Record(delta, now_ms, key, value, headers) for delta, (key, value, headers) in enumerate(entries)
    ]
    return encode_batch(encode_records(records, 0, now_ms), len(records), len(records) - 1, now_ms, now_ms)


def _varint_bytes(value: int) -> int:
    """How long a length, which is not negative, is as a varint."""
    if value < 64:
        return 1
    if value < 8192:
        return 2
    if value < 1048576:
        return 3
    return 4 if value < 134217728 else 5


def _put_length(out: bytearray, value: int) -> None:
    """A varint that is not negative; nearly all are short."""
    if value < 64:
        out.append(value << 1)
    elif value < 8192:
        out.append((value << 1) & 0x7F | 0x80)
        out.append(value >> 6)
    else:
        _put_varint(out, value)


class Message:
    """A record that is published singly: what is stored of it, and what its way through the broker needs."""

    def __init__(
        self,
        address: str,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        publisher: object = None,
        qos: int = 1,
        packet_id: int = 0,
        retain: bool = False,
        expires_at_ms: int = 0,
    ) -> None:
        self.address = address
        self.key = key
        self.value = value
        # Encoded already: see `encode_headers`.
        self.headers = headers
        self.publisher = publisher
        self.qos = qos
        self.packet_id = packet_id
        self.retain = retain
        # Where it came to stand, if it is of QoS 2.
        self.stored_in = ""
        self.offset = -1
        # When it was stored, if it comes from the log.
        self.timestamp = 0
        # 0 for never.
        self.expires_at_ms = expires_at_ms


def batch_of_messages(published: list[Message], now_ms: int) -> bytes:
    """An uncompressed batch of messages, all of one moment.

    This runs for every message that is published singly, so it writes each record once, in place.
    """
    out = bytearray()
    delta = 0
    for message in published:
        key = message.key
        value = message.value
        headers = message.headers
        size = 2 + _varint_bytes(delta) + len(headers) + 2
        if key is not None:
            size += _varint_bytes(len(key)) + len(key) - 1
        if value is not None:
            size += _varint_bytes(len(value)) + len(value) - 1
        _put_length(out, size)
        # No attributes, and no difference from the batch's time.
        out += b"\x00\x00"
        _put_length(out, delta)
        if key is None:
            out.append(1)
        else:
            _put_length(out, len(key))
            out += key
        if value is None:
            out.append(1)
        else:
            _put_length(out, len(value))
            out += value
        out += headers
        delta += 1
    return encode_batch(bytes(out), delta, delta - 1, now_ms, now_ms)


def encode_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    """Headers as they stand at the end of a record."""
    out = bytearray()
    _put_varint(out, len(headers))
    for name, content in headers:
        _put_bytes(out, name.encode("utf-8", "surrogateescape"))
        _put_bytes(out, content)
    return bytes(out)


def decode_headers(data: bytes) -> list[tuple[str, bytes | None]]:
    """What `encode_headers` made."""
    count, at = _varint(data, 0)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _nullable(data, at)
        content, at = _nullable(data, at)
        headers.append(((name or b"").decode("utf-8", "surrogateescape"), content))
    return headers


def find_batch(data: bytes, offset: int) -> int:
    """Where in `data`, which begins with a batch, the first batch stands that ends at `offset` or later.

    -1 if no such header is there whole.
    """
    at = 0
    end = len(data) - HEADER_BYTES
    while at <= end:
        base = int.from_bytes(data[at : at + 8], "big")
        last = base + int.from_bytes(data[at + 23 : at + 27], "big")
        if last >= offset:
            return at
        at += int.from_bytes(data[at + 8 : at + 12], "big") + OVERHEAD_BYTES
    return -1


def last_boundary(data: bytes, at: int, end: int) -> int:
    """Where the last batch that ends at `end` or before does so, beginning with the batch at `at`."""
    while at + OVERHEAD_BYTES <= len(data):
        following = at + int.from_bytes(data[at + 8 : at + 12], "big") + OVERHEAD_BYTES
        if following > end:
            break
        at = following
    return at


def find_key(data: bytes, at: int, header: Header, key: bytes) -> list[Record]:
    """The records of one key in a batch whose (decompressed) records begin at `at` of `data`.

    Looks at nothing else of the others than their lengths and keys.
    """
    found: list[Record] = []
    size = len(key)
    try:
        for _ in range(header.record_count):
            begin = at
            byte = data[at]
            if byte < 0x80:
                length = byte >> 1
                at += 1
            else:
                length, at = _varint(data, at)
            end = at + length
            # Behind the attributes: the deltas of time and of offset.
            at += 1
            while data[at] >= 0x80:
                at += 1
            at += 1
            while data[at] >= 0x80:
                at += 1
            at += 1
            byte = data[at]
            if byte < 0x80:
                key_size = byte >> 1 if byte & 1 == 0 else -1
                at += 1
            else:
                key_size, at = _varint(data, at)
            if key_size == size and data[at : at + size] == key:
                one = header._replace(record_count=1)
                found += decode_records(data[begin:end], 0, one)
            at = end
    except IndexError:
        raise BatchError("the records end before their count does") from None
    return found
