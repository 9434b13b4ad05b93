"""Kafka requests for the fuzz test: well-formed ones of every API and version, and ways to spoil them.

`pool` builds requests with kio's own schemas, filled with values that a client might send: topics that exist,
small numbers, record batches. `spoil` turns one into a `Shot`: bytes to send, and whether the sender has to
hang up behind them because the stream is out of step. Everything comes from a seeded `random.Random`.
"""

import dataclasses
import datetime
import functools
import io
import random
import struct
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kio.index import load_request_schema
from kio.schema.types import GroupId, TopicName, TransactionalId
from kio.serial import entity_writer
from kio.static.primitive import Records

from faults.batches import any_batch

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
# These APIs remove or change topics: they get names of their own, so that the others' topics stay.
CHANGES_TOPICS = {19, 20, 21, 32, 33, 37, 44}


@dataclass(frozen=True, slots=True)
class Request:
    api_key: int
    version: int
    frame: bytes  # without its length


@dataclass(frozen=True, slots=True)
class Shot:
    data: bytes
    last: bool  # nothing sensible can follow on this connection


def pool(apis: Mapping[int, tuple[int, int]], topics: Sequence[str], chance: random.Random) -> list[Request]:
    """A few requests of every version of every API that the broker says it has."""
    found = []
    for key, (low, high) in sorted(apis.items()):
        for version in range(low, high + 1):
            copies = 12 if key == PRODUCE else 4
            found.extend(_requests(key, version, topics, chance, copies))
    return found


def wide(
    apis: Mapping[int, tuple[int, int]], topic: str, items: int, chance: random.Random
) -> Iterator[Request]:
    """One request for each API, in its newest version, whose lists have very many items."""
    for key, (_, version) in sorted(apis.items()):
        filler = Filler([topic, *(f"none-{number}" for number in range(items))], chance, items)
        yield _request(key, version, filler.entity(load_request_schema(key, version)))


def _requests(
    key: int, version: int, topics: Sequence[str], chance: random.Random, copies: int
) -> list[Request]:
    try:
        schema = load_request_schema(key, version)
    except Exception:  # advertised for old clients' sake (Produce 0-2), but kio has no schema of it
        return [Request(key, version, struct.pack(">hhih", key, version, 1, -1) + chance.randbytes(40))]
    names = [f"made-{number}" for number in range(6)] if key in CHANGES_TOPICS else topics
    filler = Filler(names, chance)
    return [_request(key, version, filler.entity(schema)) for _ in range(copies)]


def _request(key: int, version: int, body: typing.Any) -> Request:
    header = body.__header_schema__(
        request_api_key=key, request_api_version=version, correlation_id=1, client_id="fuzz"
    )
    return Request(key, version, _encode(header) + _encode(body))


def _encode(entity: typing.Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def ping(correlation: int) -> bytes:
    """ApiVersions v0, with its length: the smallest request that every broker answers."""
    return struct.pack(">ihhih", 10, API_VERSIONS, 0, correlation, -1)


_hints = functools.cache(typing.get_type_hints)


class Filler:
    """Fills kio's dataclasses by their types."""

    def __init__(self, topics: Sequence[str], chance: random.Random, items: int | None = None) -> None:
        self.topics = topics
        self.chance = chance
        self._items = items

    def entity(self, kind: type) -> typing.Any:
        hints = _hints(kind)
        return kind(
            **{item.name: self.value(hints[item.name], item.name) for item in dataclasses.fields(kind)}
        )

    def value(self, kind: typing.Any, name: str) -> typing.Any:
        chance = self.chance
        if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
            choices = [one for one in typing.get_args(kind) if one is not type(None)]
            nothing = type(None) in typing.get_args(kind) and chance.random() < 0.2 and not self._items
            return None if nothing else self.value(choices[0], name)
        if typing.get_origin(kind) is tuple:
            count = self._items if self._items is not None else chance.choice((0, 1, 1, 2))
            self._items = None if self._items is None else 1  # only the outermost list is long
            return tuple(self.value(typing.get_args(kind)[0], name) for _ in range(count))
        if dataclasses.is_dataclass(kind):
            return self.entity(typing.cast(type, kind))
        return self._plain(kind, name)

    def _plain(self, kind: type, name: str) -> typing.Any:
        chance = self.chance
        if issubclass(kind, Enum):
            return chance.choice(list(kind))
        if issubclass(kind, bool):
            return kind(chance.random() < 0.5)
        if issubclass(kind, int):
            return self._number(kind, name)
        if issubclass(kind, str):
            return kind(self._text(kind))
        if issubclass(kind, Records):
            return any_batch(chance)
        if issubclass(kind, bytes):
            return chance.randbytes(chance.randrange(40))
        if issubclass(kind, uuid.UUID):
            return uuid.UUID(int=chance.getrandbits(128))
        if issubclass(kind, datetime.timedelta):
            # How long the broker may wait: the fuzz has no time for long polls.
            return datetime.timedelta(
                milliseconds=chance.choice((0, 1, 5, 1000) if "session" in name else (0, 1, 5))
            )
        if issubclass(kind, datetime.datetime):
            return datetime.datetime.fromtimestamp(chance.randrange(2_000_000_000), datetime.UTC)
        if issubclass(kind, float):
            return kind(chance.random())
        raise TypeError(f"{name}: {kind}")

    def _number(self, kind: type[int], name: str) -> int:
        low, high = getattr(kind, "__low__", -(1 << 31)), getattr(kind, "__high__", (1 << 31) - 1)
        if "wait" in name or "timeout" in name:
            return self.chance.randrange(5)
        number = self.chance.choice((0, 0, 0, 1, 1, 2, 3, -1, 100, 1 << 20, low, high))
        return number if low <= number <= high else 1

    def _text(self, kind: type) -> str:
        if issubclass(kind, TopicName):
            return self.chance.choice(self.topics)
        if issubclass(kind, GroupId | TransactionalId):
            return f"fuzz-{self.chance.randrange(5)}"
        return self.chance.choice(("", "range", "consumer", "made-1", "retention.ms", "1000", "0", "é" * 30))


# ---- spoiling ----


def spoil(request: Request, others: Sequence[Request], chance: random.Random) -> Shot:
    kind = chance.random()
    if kind < 0.08:
        return whole(request.frame)
    if kind < 0.16:
        return _lie_about_length(request.frame, chance)
    if kind < 0.20:  # hang up in the middle of a frame
        data = struct.pack(">i", len(request.frame)) + request.frame
        return Shot(data[: chance.randrange(len(data))], True)
    if kind < 0.23:
        return whole(chance.randbytes(chance.choice((0, 1, 7, 8, 9, 40, 300, 5000))))
    frame = request.frame
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        frame = chance.choice(_SPOILERS)(frame, others, chance)
    return whole(frame)


def whole(frame: bytes) -> Shot:
    return Shot(struct.pack(">i", len(frame)) + frame, False)


def api_key(shot: Shot) -> int:
    return int.from_bytes(shot.data[4:6], "big", signed=True)


def _lie_about_length(frame: bytes, chance: random.Random) -> Shot:
    size = len(frame)
    lies = (
        size + chance.randint(1, 200),
        chance.randrange(size + 1),
        -1,
        0,
        -(1 << 31),
        (1 << 31) - 1,
        120 << 20,
    )
    return Shot(struct.pack(">i", chance.choice(lies)) + frame, True)


Spoiler = Callable[[bytes, Sequence[Request], random.Random], bytes]

_NUMBERS = [
    *(struct.pack(">i", number) for number in (-1, -2, 0, 1 << 30, (1 << 31) - 1, -(1 << 31), 70_000)),
    *(struct.pack(">h", number) for number in (-1, -2, 32767, -32768)),
    *(struct.pack(">q", number) for number in (-1, -2, (1 << 63) - 1, -(1 << 63))),
    b"\xff\xff\xff\xff\x0f",  # the largest unsigned varint of a length
    b"\xff" * 9 + b"\x01",
    b"\x80" * 12,
]


def _flip_bits(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    spoiled = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if spoiled:
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def _put_number(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    """Overwrite bytes behind the header with a number that is wrong as a length or a count."""
    at, number = chance.randrange(8, max(9, len(frame))), chance.choice(_NUMBERS)
    return frame[:at] + number + frame[at + len(number) :]


def _insert_number(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    at = chance.randrange(len(frame) + 1)
    return frame[:at] + chance.choice(_NUMBERS) + frame[at:]


def _cut(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    return frame[: chance.randrange(len(frame) + 1)]


def _other_version(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    return frame[:2] + struct.pack(">h", chance.choice((-1, 0, 1, 2, 3, 5, 9, 12, 14, 99, 32767))) + frame[4:]


def _other_api(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    return struct.pack(">h", chance.choice((-1, *range(75), 500, 32767))) + frame[2:]


def _splice(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    other = chance.choice(others).frame
    return frame[: chance.randrange(len(frame) + 1)] + other[chance.randrange(len(other) + 1) :]


def _repeat(frame: bytes, others: Sequence[Request], chance: random.Random) -> bytes:
    at = chance.randrange(len(frame) + 1)
    part = frame[at : at + chance.randrange(1, 50)]
    return frame[:at] + part * chance.choice((2, 3, 50)) + frame[at:]


_SPOILERS: Sequence[Spoiler] = (
    _flip_bits,
    _flip_bits,
    _put_number,
    _put_number,
    _insert_number,
    _cut,
    _other_version,
    _other_api,
    _splice,
    _repeat,
)
