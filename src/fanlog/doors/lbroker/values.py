"""Records as msgpack values, whichever door they came through.

What was published here is stored as the bytes that came, with its content type, and goes out as they are. Of
other records, JSON becomes the value that it describes, UTF-8 becomes text, and all else binary.
"""

import functools
from typing import Final

import msgpack
import msgspec

from fanlog.router import headers as names
from fanlog.wire import records

MEDIA_TYPE: Final = b"application/msgpack"
HEADERS: Final = records.encode_headers(((names.CONTENT_TYPE, MEDIA_TYPE),))
_MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack", "application/vnd.msgpack"})
_NIL: Final = b"\xc0"


def value_of(value: bytes | None, headers: bytes) -> bytes:
    """A record's value as msgpack."""
    if value is None:
        return _NIL
    if headers != names.NO_HEADERS:
        kind = _content_type(headers)
        if kind in _MSGPACK_TYPES and one_value(value):
            return value
        if kind.endswith(("/json", "+json")):
            packed = _from_json(value)
            if packed is not None:
                return packed
    try:
        return _packed(value.decode())
    except UnicodeDecodeError:
        return _packed(value)


@functools.lru_cache(1024)
def _content_type(headers: bytes) -> str:
    for name, value in records.decode_headers(headers):
        if name.lower() == names.CONTENT_TYPE and value is not None:
            return value.decode("latin-1").partition(";")[0].strip().lower()
    return ""


def one_value(data: bytes) -> bool:
    """Whether this is exactly one msgpack value: anything else would garble all that follows it."""
    if not data:
        return False
    unpacker = msgpack.Unpacker(max_buffer_size=len(data), read_size=1)
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    return bool(unpacker.tell() == len(data))


def _from_json(value: bytes) -> bytes | None:
    try:
        return _packed(msgspec.json.decode(value))
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        # Not JSON after all, or a number that msgpack has no room for.
        return None


def _packed(value: object) -> bytes:
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


@functools.lru_cache(65_536)
def topic_prefix(address: str) -> bytes:
    """How the message of a topic begins: an array of two, and its name."""
    return b"\x92" + _packed(address)
