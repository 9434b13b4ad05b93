"""Whatever a client sends, the broker goes on serving the others."""

import contextlib
import random

import pytest

from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import Ack, Connect, Disconnect, Pingreq, Publish, Subscribe, Unsubscribe, Will, encode

from .conftest import MakePeer

ROUNDS = 400
SEED = 20


def frames(name: str, version: int) -> list[bytes]:
    said = {tables.USER_PROPERTY: [("a", "b")], tables.TOPIC_ALIAS: 3} if version == 5 else None
    packets = [
        Publish(f"{name}/a", b"x", 0, True, False, 0, said),
        Publish(f"{name}/b", b"y", 1, False, False, 7, said),
        Publish(f"{name}/c", b"z", 2, False, False, 8),
        Subscribe(1, [(f"{name}/#", 2), (f"$share/g/{name}", 1)]),
        Unsubscribe(2, [f"{name}/#"]),
        *(Ack(kind, 8) for kind in (tables.PUBACK, tables.PUBREC, tables.PUBREL, tables.PUBCOMP)),
        Pingreq(),
        Disconnect(),
    ]
    return [encode(packet, version) for packet in packets]


def mutated(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(0, 3)):
        how = chance.randrange(3)
        at = chance.randrange(len(data) + 1)
        if how == 0 and data:
            data[at % len(data)] = chance.randrange(256)
        elif how == 1:
            data[at:at] = chance.randbytes(chance.randint(1, 4))
        else:
            del data[at : at + chance.randint(1, 3)]
    return bytes(data)


def test_mutated_packets_harm_nobody_else(
    peer: MakePeer, name: str, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED + version)
    witness, publisher = peer(), peer()
    witness.subscribe(f"{name}-witness", qos=1)
    choices = frames(name, version)
    will = Will(f"{name}/will", b"gone", 1)
    for number in range(ROUNDS):
        client = peer(None, version=version)
        connect = encode(Connect(version, f"{name}-{number % 5}", 5, number % 2 == 0, will), version)
        sent = [connect if number % 3 else mutated(connect, chance)]
        sent += [mutated(chance.choice(choices), chance) for _ in range(chance.randint(1, 6))]
        with contextlib.suppress(ConnectionError):
            client.raw(b"".join(sent))
        client.cut()
        if number % 40 == 0:
            assert publisher.publish(f"{name}-witness", b"%d" % number, 1) == 0
            message = witness.message()
            witness.acknowledge(message)
            assert message.payload == b"%d" % number
    witness.silent()
    # A client's fault is not the broker's.
    assert [record for record in caplog.records if record.exc_info] == []
