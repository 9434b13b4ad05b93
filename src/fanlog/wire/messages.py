"""Kafka's requests and responses: bytes to values and back, by a layout that is data.

A `Layout` lists the fields of one message in one version; where the layouts come from is not this module's
affair. Decoding trusts nothing: every length and every count is held against the bytes that are left
before anything is allocated. Times and durations are milliseconds, error codes are numbers, strings are
str, records are bytes, and a structure is a namespace with its fields' names. Encoding takes dicts: a key
that this version does not have is left out, a key that is missing takes the field's default, so that a
handler writes one answer for all versions.

Compiled by mypyc where a C compiler is found.
"""

import struct
import uuid
from types import SimpleNamespace
from typing import Any, Final

BOOL: Final = 0
INT8: Final = 1
INT16: Final = 2
INT32: Final = 3
INT64: Final = 4
UINT16: Final = 5
UINT32: Final = 6
FLOAT64: Final = 7
UUID: Final = 8
STRING: Final = 9
BYTES: Final = 10
STRUCT: Final = 11

# Items of all lists of one message together. A short message can claim many empty ones, each of which
# costs far more in memory than on the wire.
ITEMS_MAX: Final = 100_000

_SIZES: Final = (1, 1, 2, 4, 8, 2, 4, 8, 16)
_PACK: Final = tuple(struct.Struct(form) for form in ("?", ">b", ">h", ">i", ">q", ">H", ">I", ">d"))
_NO_UUID: Final = uuid.UUID(int=0)


class MessageError(Exception):
    """Bytes that are not the message they claim to be."""


class Layout:
    """The fields of one message, or of one structure inside it."""

    def __init__(self, name: str, flexible: bool) -> None:
        self.name = name
        self.flexible = flexible
        self.fields: list[Field] = []
        self.tagged: dict[int, Field] = {}


class Field:
    def __init__(
        self, name: str, kind: int, is_array: bool, nullable: bool, default: Any, nested: Layout | None
    ) -> None:
        self.name = name
        self.kind = kind
        self.is_array = is_array
        self.nullable = nullable
        self.default = default
        self.nested = nested


class Cursor:
    """A place in a message, and how many more items it may have."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.items_left = ITEMS_MAX

    def uvarint(self) -> int:
        data = self.data
        at = self.at
        value = 0
        shift = 0
        while True:
            if at >= len(data):
                raise MessageError("the message ends inside a number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value
            shift += 7
            if shift > 28:
                raise MessageError("a length of more than five bytes")

    def length(self, flexible: bool, width: int) -> int:
        """A length or count that fits what is left; -1 for null."""
        if flexible:
            length = self.uvarint() - 1
        else:
            length = int.from_bytes(self.take(width), "big", signed=True)
        if length < -1 or length > len(self.data) - self.at:
            raise MessageError(f"a length of {length} where {len(self.data) - self.at} bytes are left")
        return length

    def take(self, size: int) -> bytes:
        at = self.at
        end = at + size
        if end > len(self.data):
            raise MessageError("the message ends too soon")
        self.at = end
        return self.data[at:end]


def _decode_one(cursor: Cursor, field: Field, flexible: bool) -> Any:
    kind = field.kind
    if kind <= UINT32:
        raw = cursor.take(_SIZES[kind])
        if kind == BOOL:
            return raw[0] != 0
        return int.from_bytes(raw, "big", signed=kind <= INT64)
    if kind == STRUCT:
        assert field.nested is not None
        if field.nullable and not field.is_array and cursor.take(1)[0] == 0xFF:
            return None
        return _decode_struct(cursor, field.nested)
    if kind == UUID:
        return uuid.UUID(bytes=cursor.take(16))
    if kind == FLOAT64:
        return _PACK[kind].unpack(cursor.take(8))[0]
    length = cursor.length(flexible, 2 if kind == STRING else 4)
    if length < 0:
        if not field.nullable or field.is_array:
            raise MessageError(f"{field.name} may not be null")
        return None
    raw = cursor.take(length)
    if kind == BYTES:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MessageError(f"{field.name} is not UTF-8") from None


def _decode_field(cursor: Cursor, field: Field, flexible: bool) -> Any:
    if not field.is_array:
        return _decode_one(cursor, field, flexible)
    count = cursor.length(flexible, 4)
    if count < 0:
        return None
    cursor.items_left -= count
    if cursor.items_left < 0:
        raise MessageError(f"more than {ITEMS_MAX} items in one message")
    return [_decode_one(cursor, field, flexible) for _ in range(count)]


def _decode_struct(cursor: Cursor, layout: Layout) -> Any:
    values: dict[str, Any] = {}
    flexible = layout.flexible
    for field in layout.fields:
        values[field.name] = _decode_field(cursor, field, flexible)
    if flexible:
        for tagged in layout.tagged.values():
            values[tagged.name] = tagged.default
        count = cursor.uvarint()
        for _ in range(count):
            number = cursor.uvarint()
            size = cursor.uvarint()
            end = cursor.at + size
            known = layout.tagged.get(number)
            if known is not None:
                values[known.name] = _decode_field(cursor, known, True)
            if end > len(cursor.data) or (known is not None and cursor.at != end):
                raise MessageError("a tagged field does not fill its size")
            cursor.at = end
    return SimpleNamespace(**values)


def decode(data: bytes, at: int, layout: Layout) -> Any:
    """The message that begins at `at` of `data`. What comes behind it is not looked at."""
    return _decode_struct(Cursor(data, at), layout)


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _encode_one(out: bytearray, value: Any, field: Field, flexible: bool) -> None:
    kind = field.kind
    if kind <= FLOAT64:
        out += _PACK[kind].pack(value)
    elif kind == STRUCT:
        assert field.nested is not None
        if field.nullable and not field.is_array:
            if value is None:
                out.append(0xFF)
                return
            out.append(1)
        encode(out, value, field.nested)
    elif kind == UUID:
        out += (value or _NO_UUID).bytes
    else:
        raw: bytes | None = value.encode() if kind == STRING and value is not None else value
        if raw is None and not field.nullable:
            raise ValueError(f"{field.name} may not be null")
        if flexible:
            write_uvarint(out, 0 if raw is None else len(raw) + 1)
        else:
            length = -1 if raw is None else len(raw)
            out += length.to_bytes(2 if kind == STRING else 4, "big", signed=True)
        if raw is not None:
            out += raw


def _encode_field(out: bytearray, value: Any, field: Field, flexible: bool) -> None:
    if not field.is_array:
        _encode_one(out, value, field, flexible)
        return
    if flexible:
        write_uvarint(out, 0 if value is None else len(value) + 1)
    else:
        count = -1 if value is None else len(value)
        out += count.to_bytes(4, "big", signed=True)
    if value is not None:
        for item in value:
            _encode_one(out, item, field, flexible)


def encode(out: bytearray, values: dict[str, Any], layout: Layout) -> None:
    """Appends a structure to `out`."""
    flexible = layout.flexible
    for field in layout.fields:
        value = values.get(field.name, field.default)
        _encode_field(out, value, field, flexible)
    if not flexible:
        return
    given = [
        (tag, tagged)
        for tag, tagged in layout.tagged.items()
        if tagged.name in values and values[tagged.name] != tagged.default
    ]
    write_uvarint(out, len(given))
    for tag, tagged in given:
        body = bytearray()
        _encode_field(body, values[tagged.name], tagged, True)
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body
