"""The MQTT codec: what is encoded is decoded, however it is cut; what is damaged is refused, and no worse."""

from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanlog.wire.mqtt_tables import (
    AUTH,
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    BINARY,
    PACKET_NAMES,
    PAIR,
    PROPERTIES,
    REASONS,
    RESPONSE_TOPIC,
    STRING,
    Property,
)

from .test_mqtt_table import TABLE

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
LEVEL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/+#"), max_size=6)
TEXT = st.text(CHARACTERS, max_size=12)
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.tuples(st.lists(LEVEL | st.just("+"), max_size=3), LEVEL | st.sampled_from("+#")).map(
    lambda levels: "/".join([*levels[0], levels[1]])
)
FILTER = FILTER.filter(lambda text: text != "" and not text.startswith("$share/"))
SHARED = st.tuples(LEVEL.filter(bool), FILTER).map(lambda parts: f"$share/{parts[0]}/{parts[1]}")
PACKET_ID = st.integers(1, 65535)
PAYLOAD = st.binary(max_size=40) | st.integers(100, 20_000).map(bytes)


def property_values(row: Property, kind: int) -> st.SearchStrategy[Any]:
    if row.number == RESPONSE_TOPIC:
        return TOPIC
    if row.form == STRING:
        return TEXT
    if row.form == BINARY:
        return st.binary(max_size=12)
    one = st.tuples(TEXT, TEXT) if row.form == PAIR else st.integers(row.least, row.most)
    if row.repeated == 0:
        return one
    return st.lists(one, min_size=1, max_size=3 if row.repeated >> kind & 1 else 1)


@st.composite
def properties(draw: st.DrawFn, kind: int, by_client: bool) -> dict[int, Any]:
    """Any that the table allows; in the order of the draw, because order is kept."""
    allowed = [row for row in PROPERTIES if (row.by_client if by_client else row.by_server) >> kind & 1]
    chosen = draw(st.lists(st.sampled_from(allowed), unique_by=lambda row: row.number, max_size=5))
    values = {row.number: draw(property_values(row, kind)) for row in chosen}
    if kind == AUTH or AUTHENTICATION_DATA in values:
        values.setdefault(AUTHENTICATION_METHOD, "method")
    return values


def reasons(kind: int, by_client: bool) -> st.SearchStrategy[int]:
    return st.sampled_from(
        [row.code for row in REASONS if (row.by_client if by_client else row.by_server) >> kind & 1]
    )


@st.composite
def packets(draw: st.DrawFn, mqtt: ModuleType, version: int, by_client: bool) -> Any:
    """Any packet that this side sends in this version."""
    names = "Publish Ack "
    names += (
        "Connect Subscribe Unsubscribe Pingreq Disconnect"
        if by_client
        else "Connack Suback Unsuback Pingresp"
    )
    if version == 5:
        names += " Auth" if by_client else " Disconnect Auth"
    name = draw(st.sampled_from(names.split()))
    made = getattr(mqtt, name)
    kind = draw(st.integers(4, 7)) if name == "Ack" else PACKET_NAMES.index(name.upper())

    def said(kind: int = kind) -> dict[int, Any]:
        return draw(properties(kind, by_client)) if version == 5 else {}

    if name == "Publish":
        qos = draw(st.integers(0, 2))
        packet_id, dup = (draw(PACKET_ID), draw(st.booleans())) if qos else (0, False)
        return made(draw(TOPIC), draw(PAYLOAD), qos, draw(st.booleans()), dup, packet_id, said() or None)
    if name == "Ack":
        code = draw(reasons(kind, by_client)) if version == 5 else 0
        return made(kind, draw(PACKET_ID), code, said() or None)
    if name == "Connect":
        will = None
        if draw(st.booleans()):
            will = mqtt.Will(
                draw(TOPIC), draw(PAYLOAD), draw(st.integers(0, 2)), draw(st.booleans()), said(0)
            )
        username = draw(st.none() | TEXT)
        password = draw(st.none() | PAYLOAD) if username is not None or version == 5 else None
        alive = draw(st.integers(0, 65535))
        return made(version, draw(TEXT), alive, draw(st.booleans()), will, username, password, said())
    if name == "Connack":
        code = draw(reasons(kind, by_client) if version == 5 else st.integers(0, 5))
        present = code == 0 and version > 3 and draw(st.booleans())
        return made(present, code, said())
    if name == "Subscribe":
        options = st.tuples(st.integers(0, 15), st.integers(0, 2)).map(lambda pair: pair[0] | pair[1] << 4)
        options = options.filter(lambda value: value & 3 != 3) if version == 5 else st.integers(0, 2)
        plain = st.tuples(FILTER, options)
        shared = st.tuples(SHARED, options.map(lambda value: value & ~mqtt.NO_LOCAL))
        return made(draw(PACKET_ID), draw(st.lists(plain | shared, min_size=1, max_size=4)), said())
    if name == "Unsubscribe":
        return made(draw(PACKET_ID), draw(st.lists(FILTER | SHARED, min_size=1, max_size=4)), said())
    if name == "Suback":
        codes = reasons(kind, by_client) if version == 5 else st.sampled_from([0, 1, 2, 0x80])
        return made(draw(PACKET_ID), bytes(draw(st.lists(codes, min_size=1, max_size=5))), said())
    if name == "Unsuback":
        codes = draw(st.lists(reasons(kind, by_client), min_size=1, max_size=5)) if version == 5 else []
        return made(draw(PACKET_ID), bytes(codes), said())
    if name in ("Disconnect", "Auth"):
        return made(draw(reasons(kind, by_client)), said()) if version == 5 else made()
    return made()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@pytest.mark.parametrize("version", [3, 4, 5])
@settings(max_examples=250, deadline=None)
@given(data=st.data(), by_client=st.booleans(), places=st.lists(st.integers(0, 2**16), max_size=6))
def test_what_is_encoded_is_decoded_however_it_is_cut(
    mqtt: ModuleType, version: int, data: st.DataObject, by_client: bool, places: list[int]
) -> None:
    said = data.draw(st.lists(packets(mqtt, version, by_client), min_size=1, max_size=6))
    # A CONNECT comes once, and first.
    connects = [packet for packet in said if isinstance(packet, mqtt.Connect)][:1]
    said = connects + [packet for packet in said if not isinstance(packet, mqtt.Connect)]
    decoder = mqtt.Decoder(version=0 if connects else version, from_client=by_client)
    wire = b"".join(mqtt.encode(packet, version) for packet in said)
    assert [packet for chunk in cut(wire, places) for packet in decoder.feed(chunk)] == said


def outcome(mqtt: ModuleType, version: int, by_client: bool, chunks: list[bytes]) -> list[str]:
    """What becomes of the chunks, in words; any error but a refusal is not caught."""
    decoder = mqtt.Decoder(100_000, version, by_client)
    said: list[str] = []
    try:
        for chunk in chunks:
            said += [repr(packet) for packet in decoder.feed(chunk)]
    except mqtt.ProtocolError as fault:
        said += [repr(packet) for packet in fault.packets]
        said.append(f"{fault.reason_code:02x} {fault}")
    return said


@st.composite
def damaged(draw: st.DrawFn) -> tuple[int, bool, list[bytes]]:
    """Packets of the table, with bytes changed, put in and taken out."""
    first = draw(st.sampled_from(TABLE))
    kin = [
        row for row in TABLE if row.version == first.version and row.sender == first.sender and row.is_right
    ]
    wire = bytearray(
        b"".join(row.data for row in [*draw(st.lists(st.sampled_from(kin or [first]), max_size=3)), first])
    )
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(wire)))
        what = draw(st.integers(0, 3))
        if what == 0:
            wire[place:place] = draw(st.binary(min_size=1, max_size=3))
        elif what == 1:
            del wire[place : place + 1]
        elif place < len(wire):
            wire[place] = (
                wire[place] ^ 1 << draw(st.integers(0, 7)) if what == 2 else draw(st.integers(0, 255))
            )
    version = 0 if wire[:1] == b"\x10" and first.sender == "C" else first.version
    return version, first.sender == "C", cut(bytes(wire), draw(st.lists(st.integers(0, 999), max_size=3)))


@settings(max_examples=1500, deadline=None)
@given(case=damaged())
def test_damaged_packets_are_refused_alike_compiled_or_not_and_cut_or_not(
    mqtt_plain_and_compiled: tuple[ModuleType, ModuleType], case: tuple[int, bool, list[bytes]]
) -> None:
    plain, compiled = mqtt_plain_and_compiled
    version, by_client, chunks = case
    found = outcome(compiled, version, by_client, chunks)
    assert outcome(plain, version, by_client, chunks) == found
    assert outcome(compiled, version, by_client, [b"".join(chunks)]) == found


@settings(max_examples=400, deadline=None)
@given(version=st.sampled_from([0, 3, 4, 5]), chunks=st.lists(st.binary(max_size=60), max_size=4))
def test_noise_is_refused_or_waited_for(mqtt: ModuleType, version: int, chunks: list[bytes]) -> None:
    outcome(mqtt, version, True, chunks)


def test_packets_that_differ_are_not_equal(mqtt: ModuleType) -> None:
    assert mqtt.Publish("a", b"x") == mqtt.Publish("a", b"x")
    assert mqtt.Publish("a", b"x") != mqtt.Publish("a", b"y")
    assert mqtt.Publish("a", b"x") != mqtt.Publish("a", b"x", 1)
    assert mqtt.Pingreq() != mqtt.Pingresp()
    assert mqtt.Will("a", b"", properties={2: 1}) != mqtt.Will("a", b"", properties={2: 2})


def test_a_refusal_carries_the_packets_before_the_fault_and_is_final(mqtt: ModuleType) -> None:
    decoder = mqtt.Decoder()
    connect = mqtt.Connect(5, "me", 60)
    with pytest.raises(mqtt.ProtocolError) as refused:
        decoder.feed(mqtt.encode(connect, 5) + b"\xc0\x00" + b"\xc1\x00" + b"\xc0\x00")
    assert refused.value.packets == [connect, mqtt.Pingreq()]
    with pytest.raises(mqtt.ProtocolError, match="PINGREQ has the flags 0001") as again:
        decoder.feed(b"\xc0\x00")
    assert again.value.packets == []


def test_a_packet_at_the_limit_passes_and_one_past_it_is_refused_before_it_is_there(mqtt: ModuleType) -> None:
    frame = mqtt.encode_publish(b"t", bytes(200), 0, False, False, 0, None)
    assert len(mqtt.Decoder(len(frame), 4).feed(frame)) == 1
    with pytest.raises(mqtt.ProtocolError) as refused:
        mqtt.Decoder(len(frame) - 1, 4).feed(frame[:3])
    assert refused.value.reason_code == 0x95
    with pytest.raises(mqtt.ProtocolError) as refused:
        mqtt.Decoder(1000, 4).feed(b"\x30\xff\xff\xff\x7f")
    assert refused.value.reason_code == 0x95


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_every_width_of_the_remaining_length_is_written_and_read(mqtt: ModuleType, length: int) -> None:
    payload = bytes(max(length - 3, 0))
    frame = mqtt.encode_publish(b"t", payload, 0, False, False, 0, None)
    width = 1 + (len(payload) + 3 > 127) + (len(payload) + 3 > 16383) + (len(payload) + 3 > 2097151)
    assert len(frame) == 1 + width + 3 + len(payload)
    decoder = mqtt.Decoder(version=4)
    parts = [frame[at : at + 65536] for at in range(0, len(frame), 65536)]
    assert [packet.payload for part in parts for packet in decoder.feed(part)] == [payload]


def test_more_topics_than_are_kept_are_all_told_apart(mqtt: ModuleType) -> None:
    decoder = mqtt.Decoder(version=4)
    topics = [f"site/{number}" for number in range(300)] + ["long/" + "x" * 60_000]
    wire = b"".join(mqtt.encode(mqtt.Publish(topic, b""), 4) for topic in topics)
    for _ in range(2):
        assert [packet.topic for packet in decoder.feed(wire)] == topics


@pytest.mark.parametrize("properties", [None, b"\x00", b"\x05\x02\x00\x00\x00\x3c"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_frame_with_a_hole_is_the_frame_once_the_packet_id_is_in(
    mqtt: ModuleType, qos: int, properties: bytes | None
) -> None:
    for size in (0, 100, 130, 20_000):
        head, tail = mqtt.publish_frame_parts(b"a/b", bytes(size), qos, True, properties)
        whole = mqtt.encode_publish(b"a/b", bytes(size), qos, True, False, 0x1234, properties)
        assert head + b"\x12\x34" + tail == whole


def test_a_topic_alias_is_added_to_properties_that_others_share(mqtt: ModuleType) -> None:
    for shared in ({}, {2: 60}, {0x26: [("name", "v" * 120)]}, {0x26: [("name", "v" * 118)]}):
        aliased = mqtt.add_topic_alias(mqtt.encode_properties(shared, 3), 9)
        frame = mqtt.encode_publish(b"", b"x", 0, False, False, 0, aliased)
        [packet] = mqtt.Decoder(version=5).feed(frame)
        assert packet == mqtt.Publish("", b"x", properties={0x23: 9} | shared)


def test_many_acknowledgements_are_one_write(mqtt: ModuleType) -> None:
    numbers = [1, 255, 256, 65535]
    assert mqtt.encode_acks(mqtt.PUBREL, numbers) == b"".join(mqtt.encode_ack(6, one, 5) for one in numbers)
    with pytest.raises(ValueError, match="no packet identifier"):
        mqtt.encode_acks(mqtt.PUBACK, [1, 0])


@pytest.mark.parametrize(
    ("reason_code", "told"), [(0x84, 1), (0x85, 2), (0x88, 3), (0x86, 4), (0x87, 5), (0x97, 3), (0x81, 3)]
)
def test_an_older_client_is_refused_in_its_own_words(mqtt: ModuleType, reason_code: int, told: int) -> None:
    assert mqtt.encode_connack(4, True, reason_code, {0x1F: "why"}) == bytes([0x20, 2, 0, told])


def test_an_older_client_gets_no_more_than_its_version_has(mqtt: ModuleType) -> None:
    assert mqtt.encode_suback(4, 1, b"\x00\x02\x8f", {0x1F: "x"}) == bytes.fromhex("90 05 0001 00 02 80")
    assert mqtt.encode_unsuback(4, 1, b"\x11", {0x1F: "x"}) == bytes.fromhex("b0 02 0001")
    assert mqtt.encode_ack(4, 1, 4, 0x97, {0x1F: "x"}) == bytes.fromhex("40 02 0001")
    assert mqtt.encode_disconnect(4, 0x8E, {0x1F: "x"}) == bytes.fromhex("e0 00")
    assert mqtt.encode_connack(3, True) == bytes.fromhex("20 02 00 00")


def test_what_mqtt_cannot_say_is_not_encoded(mqtt: ModuleType) -> None:
    for wrong in (
        mqtt.Publish("t", b"", 1),
        mqtt.Publish("t", b"", 1, packet_id=65536),
        mqtt.Publish("t", b"", 3, packet_id=1),
        mqtt.Publish("t", b"", 0, dup=True),
        mqtt.Publish("t" * 65536, b""),
        mqtt.Publish("t", b"", properties={0x23: 0}),
        mqtt.Publish("t", b"", properties={0x21: 1}),
        mqtt.Publish("t", b"", properties={3: "x" * 65536}),
        mqtt.Ack(4, 0),
        mqtt.Subscribe(0, [("a", 0)]),
        mqtt.Connack(properties={0x24: 2}),
        mqtt.Connect(5, "x" * 65536),
        mqtt.Connect(5, "a\0b"),
        mqtt.Publish("t", b"", properties={0x26: [("k", "a\0b")]}),
        mqtt.Publish("t", b"", properties={0x26: [("k", "\ud800")]}),
    ):
        with pytest.raises(ValueError, match=r"may not|no place|packet identifier|QoS|bytes|surrogates"):
            mqtt.encode(wrong, 5)


def test_a_decoder_of_what_a_server_sends_must_be_told_the_version(mqtt: ModuleType) -> None:
    with pytest.raises(ValueError, match="version"):
        mqtt.Decoder(from_client=False)


@pytest.mark.parametrize(
    ("connect", "version"),
    [("10 0e 0004 4d515454 06 02 003c 0002 6d65", 5), ("10 0e 0004 4d515454 03 02 003c 0002 6d65", 4)],
)
def test_the_answer_to_an_unknown_version_has_a_version(mqtt: ModuleType, connect: str, version: int) -> None:
    decoder = mqtt.Decoder()
    with pytest.raises(mqtt.ProtocolError):
        decoder.feed(bytes.fromhex(connect))
    assert decoder.version == version
