"""Kafka's messages: our codec and kio's agree on every call and version that the door answers."""

import io
import random
import uuid
from types import ModuleType
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from fanlog.doors.kafka.layouts import request_layout, response_layout
from fanlog.doors.kafka.registry import apis
from fanlog.wire.messages import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    STRUCT,
    UINT16,
    UINT32,
    UUID,
    Field,
    Layout,
)

# kio no longer has Produce from before record batches.
VERSIONS = [
    (entry.key, version)
    for entry in apis().values()
    for version in range(3 if entry.key == 0 else entry.oldest, entry.newest + 1)
]
_BITS = {INT8: 7, INT16: 15, INT32: 31, INT64: 63}


def some_value(field: Field, chance: random.Random) -> Any:
    if field.is_array:
        if field.nullable and field.kind == STRUCT and chance.random() < 0.2:
            return None
        return [some_one(field, chance) for _ in range(chance.randrange(3))]
    if field.nullable and field.kind in (STRING, BYTES, STRUCT) and chance.random() < 0.3:
        return None
    return some_one(field, chance)


def some_one(field: Field, chance: random.Random) -> Any:
    kind = field.kind
    if kind == STRUCT:
        assert field.nested is not None
        return some_message(field.nested, chance)
    if kind == BOOL:
        return chance.random() < 0.5
    if kind in _BITS:
        # Error codes and times have smaller ranges than their types; what both sides take will do here.
        return chance.choice([0, 1, 2, 35, 119])
    if kind in (UINT16, UINT32):
        return chance.choice([0, 1, 65535])
    if kind == FLOAT64:
        return chance.random()
    if kind == UUID:
        return uuid.UUID(int=chance.getrandbits(128) | 1)
    text = "".join(chance.choices("abcdefgäß-", k=chance.randrange(12)))
    return text if kind == STRING else text.encode()


def some_message(layout: Layout, chance: random.Random) -> dict[str, Any]:
    values = {field.name: some_value(field, chance) for field in layout.fields}
    for field in layout.tagged.values():
        if chance.random() < 0.5:
            values[field.name] = some_value(field, chance)
    return values


def covers(decoded: Any, values: Any) -> bool:
    """Whether all of `values` is in `decoded`, which has defaults beside."""
    if isinstance(values, dict):
        return all(covers(getattr(decoded, name), item) for name, item in values.items())
    if isinstance(values, list):
        return len(decoded) == len(values) and all(map(covers, decoded, values))
    return bool(decoded == values)


def copied(layout: Layout, module: ModuleType) -> Any:
    """The layout in classes of `module`: the compiled and the plain codec know only their own."""
    mine = module.Layout(layout.name, layout.flexible)
    mine.fields = [copied_field(field, module) for field in layout.fields]
    mine.tagged = {tag: copied_field(field, module) for tag, field in layout.tagged.items()}
    return mine


def copied_field(field: Field, module: ModuleType) -> Any:
    nested = copied(field.nested, module) if field.nested is not None else None
    return module.Field(field.name, field.kind, field.is_array, field.nullable, field.default, nested)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_kio_reads_what_we_write_and_writes_the_same(messages: ModuleType, key: int, version: int) -> None:
    chance = random.Random(key * 100 + version)
    for load, layout_of in ((load_request_schema, request_layout), (load_response_schema, response_layout)):
        schema = load(key, version)
        layout = copied(layout_of(key, version), messages)
        for _ in range(10):
            values = some_message(layout, chance)
            ours = bytearray()
            messages.encode(ours, values, layout)
            entity, size = entity_reader(schema)(bytes(ours), 0)
            assert size == len(ours)
            theirs = io.BytesIO()
            entity_writer(schema)(theirs, entity)
            assert theirs.getvalue() == bytes(ours)
            assert covers(messages.decode(bytes(ours), 0, layout), values)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_damaged_messages_are_refused_and_nothing_else(messages: ModuleType, key: int, version: int) -> None:
    chance = random.Random(key * 100 + version)
    layout = copied(request_layout(key, version), messages)
    for _ in range(60):
        raw = bytearray()
        messages.encode(raw, some_message(layout, chance), layout)
        for _ in range(chance.randint(1, 4)):
            if raw:
                raw[chance.randrange(len(raw))] = chance.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]
                )
        damaged = bytes(raw[: chance.randint(0, len(raw))])
        try:
            messages.decode(damaged, 0, layout)
        except messages.MessageError:
            continue


def test_a_count_larger_than_the_message_is_refused_before_memory_is_taken(messages: ModuleType) -> None:
    layout = copied(request_layout(0, 9), messages)
    claim = b"\x00\xff\xff\x00\x00\x00\x00" + b"\xff\xff\xff\xff\x0f" + bytes(10)
    with pytest.raises(messages.MessageError):
        messages.decode(claim, 0, layout)


def test_a_message_of_very_many_items_is_refused(messages: ModuleType) -> None:
    layout = copied(request_layout(3, 1), messages)
    count = messages.ITEMS_MAX + 1
    with pytest.raises(messages.MessageError, match="items"):
        messages.decode(count.to_bytes(4, "big") + bytes(2 * count), 0, layout)
    count -= 1
    assert len(messages.decode(count.to_bytes(4, "big") + bytes(2 * count), 0, layout).topics) == count


def test_an_answer_takes_what_its_version_has(messages: ModuleType) -> None:
    answer = {"error_code": 0, "throttle_time": 7, "unknown": 1}
    for version, size in ((0, 2), (1, 6)):
        out = bytearray()
        messages.encode(out, answer, copied(response_layout(12, version), messages))
        assert len(out) == size
