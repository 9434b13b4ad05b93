"""MQTT's packets, right and wrong, as one table: the right are decoded and encoded, the wrong are named.

A row is the version of the connection (0: no CONNECT has been read yet) and who sends (Client or Server);
the bytes, hexadecimal, or text between quotes; the packet, or the reason code of the refusal; the clause.
A packet behind ~ has a shorter form than the one in the row, and that is the one we send.
"""

import re
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from fanlog.wire.mqtt_tables import PROPERTY_BY_NUMBER


class Row(NamedTuple):
    version: int
    sender: str
    wire: str
    means: str
    clause: str

    @property
    def data(self) -> bytes:
        parts = re.findall(r"'[^']*'|[0-9a-f]+", self.wire)
        return b"".join(part[1:-1].encode() if part[0] == "'" else bytes.fromhex(part) for part in parts)

    @property
    def is_right(self) -> bool:
        return self.means.endswith(")")

    def packet(self, mqtt: ModuleType) -> Any:
        return eval(self.means.removeprefix("~ "), dict(vars(mqtt)))

    def decoder(self, mqtt: ModuleType) -> Any:
        version = 0 if self.means.removeprefix("~ ").startswith("Connect(") else self.version
        return mqtt.Decoder(version=version, from_client=self.sender == "C")


def rows(text: str) -> list[Row]:
    found = []
    for line in text.replace("\\\n", "").strip().splitlines():
        who, wire, means, clause = (re.sub(r"\s+", " ", column.strip()) for column in line.split(" | "))
        found.append(Row(int(who[0]), who[2], wire, means, clause))
    return found


TABLE = rows(r"""
3 C | 10 10 0006 'MQIsdp' 03 02 003c 0002 'me' | Connect(3, "me", 60) | v3.1 3.1
3 C | 10 10 0006 'MQIsdp' 03 c2 003c 0002 'me' | ~ Connect(3, "me", 60) | v3.1 3.1, the length \
    outweighs the flags
3 C | 10 13 0006 'MQIsdp' 03 c2 003c 0002 'me' 0001 'u' | ~ Connect(3, "me", 60, username="u") | v3.1 3.1
4 C | 10 0e 0004 'MQTT' 04 00 0000 0002 'me' | Connect(4, "me", 0, False) | 3.1.2
4 C | 10 0c 0004 'MQTT' 04 02 ffff 0000 | Connect(4, "", 65535) | MQTT-3.1.3-6
4 C | 10 15 0004 'MQTT' 04 c2 000a 0002 'me' 0001 'u' 0002 'pw' | Connect(4, "me", 10, username="u", \
    password=b"pw") | 3.1.3
4 C | 10 11 0004 'MQTT' 04 82 000a 0002 'me' 0001 'u' | Connect(4, "me", 10, username="u") | MQTT-3.1.2-19
4 C | 10 12 0004 'MQTT' 04 c2 000a 0002 'me' 0000 0000 | Connect(4, "me", 10, username="", \
    password=b"") | 3.1.3
4 C | 10 16 0004 'MQTT' 04 2e 000a 0002 'me' 0001 't' 0003 'bye' | Connect(4, "me", 10, \
    will=Will("t", b"bye", 1, True)) | MQTT-3.1.2-9
4 C | 10 13 0004 'MQTT' 04 16 000a 0002 'me' 0001 't' 0000 | Connect(4, "me", 10, will=Will("t", \
    b"", 2)) | MQTT-3.1.2-14
4 C | 10 9400 0004 'MQTT' 04 02 003c 0008 'overlong' | ~ Connect(4, "overlong", 60) | v3.1.1 2.2.3, \
    says nothing of the fewest bytes
5 C | 10 0f 0004 'MQTT' 05 02 003c 00 0002 'me' | Connect(5, "me", 60) | 3.1.2
5 C | 10 13 0004 'MQTT' 05 42 003c 00 0002 'me' 0002 'pw' | Connect(5, "me", 60, password=b"pw") | 3.1.2.9
5 C | 10 14 0004 'MQTT' 05 00 003c 05 11 0000000a 0002 'me' | Connect(5, "me", 60, False, \
    properties={0x11: 10}) | 3.1.2.11.2
5 C | 10 2c 0004 'MQTT' 05 02 003c 1d 21 0001 27 00000001 22 ffff 19 01 17 00 26 0001 'k' 0001 'v' \
    26 0001 'k' 0001 'w' 0002 'me' | Connect(5, "me", 60, properties={0x21: 1, 0x27: 1, 0x22: 65535, \
    0x19: 1, 0x17: 0, 0x26: [("k", "v"), ("k", "w")]}) | 3.1.2.11
5 C | 10 1b 0004 'MQTT' 05 02 003c 0c 15 0003 'SCR' 16 0003 00ff00 0002 'me' | Connect(5, "me", 60, \
    properties={0x15: "SCR", 0x16: b"\x00\xff\x00"}) | 3.1.2.11.9
5 C | 10 31 0004 'MQTT' 05 0e 003c 00 0002 'me' 1b 18 00000005 01 01 02 0000003c 03 0001 'c' 08 0003 \
    'r/t' 09 0002 0001 0001 't' 0001 'x' | Connect(5, "me", 60, will=Will("t", b"x", 1, \
    properties={0x18: 5, 1: 1, 2: 60, 3: "c", 8: "r/t", 9: b"\x00\x01"})) | 3.1.3.2
4 S | 20 02 00 00 | Connack() | 3.2
4 S | 20 02 01 00 | Connack(True) | MQTT-3.2.2-3
4 S | 20 02 00 05 | Connack(False, 5) | v3.1.1 3.2.2.3
3 S | 20 02 00 04 | Connack(False, 4) | v3.1 3.2
3 S | 20 02 ff 00 | ~ Connack() | v3.1 3.2, the byte is reserved
5 S | 20 03 01 00 00 | Connack(True) | 3.2.2
5 S | 20 03 00 87 00 | Connack(False, 0x87) | MQTT-3.2.2-7
5 S | 20 32 00 00 2f 11 00000000 21 0014 24 01 25 00 27 0000ffff 12 0002 'id' 22 000a 1f 0002 'ok' \
    28 01 29 01 2a 01 13 0005 1a 0001 'r' 1c 0001 's' | Connack(False, 0, {0x11: 0, 0x21: 20, 0x24: 1, \
    0x25: 0, 0x27: 65535, 0x12: "id", 0x22: 10, 0x1F: "ok", 0x28: 1, 0x29: 1, 0x2A: 1, 0x13: 5, 0x1A: \
    "r", 0x1C: "s"}) | 3.2.2.3
4 C | 30 07 0003 'a/b' 'hi' | Publish("a/b", b"hi") | 3.3
4 C | 30 05 0003 'a/b' | Publish("a/b", b"") | 3.3.3
4 C | 31 07 0003 'a/b' 'hi' | Publish("a/b", b"hi", retain=True) | 3.3.1.3
4 C | 32 09 0003 'a/b' 0001 'hi' | Publish("a/b", b"hi", 1, packet_id=1) | 3.3.2.2
4 C | 3a 09 0003 'a/b' ffff 'hi' | Publish("a/b", b"hi", 1, dup=True, packet_id=65535) | MQTT-3.3.1-1
4 C | 3d 07 0003 'a/b' 0102 | Publish("a/b", b"", 2, True, True, 258) | 3.3.1.2
3 C | 34 08 0003 'a/b' 0102 00 | Publish("a/b", b"\0", 2, packet_id=258) | v3.1 3.3
4 C | 30 03 0001 '/' | Publish("/", b"") | 4.7.3
4 C | 30 08 0006 '$SYS/x' | Publish("$SYS/x", b"") | 4.7.2
4 C | 30 07 0005 e282ac '/x' | Publish("\u20ac/x", b"") | 1.5.4
4 C | 30 07 0005 efbbbf '/x' | Publish("\ufeff/x", b"") | MQTT-1.5.4-3
4 C | 30 06 0004 f0aa9b94 | Publish("\U0002a6d4", b"") | 1.5.4, figure 1-2
5 C | 30 08 0003 'a/b' 00 'hi' | Publish("a/b", b"hi") | MQTT-2.2.2-1
5 C | 32 08 0003 'a/b' 0007 00 | Publish("a/b", b"", 1, packet_id=7) | 3.3.2
5 C | 30 0a 0003 'a/b' 02 01 01 'hi' | Publish("a/b", b"hi", properties={1: 1}) | MQTT-3.3.2-4
5 C | 30 0b 0003 'a/b' 03 23 0001 'hi' | Publish("a/b", b"hi", properties={0x23: 1}) | 3.3.2.3.4
5 C | 30 08 0000 03 23 ffff 'hi' | Publish("", b"hi", properties={0x23: 65535}) | 3.3.2.1
5 C | 34 20 0003 'a/b' 0007 17 02 00000000 08 0003 'r/1' 09 0000 03 0000 26 0000 0001 'v' 'x' | \
    Publish("a/b", b"x", 2, packet_id=7, properties={2: 0, 8: "r/1", 9: b"", 3: "", 0x26: [("", "v")]}) \
    | 3.3.2.3
5 S | 30 0f 0003 'a/b' 09 0b 01 0b 8001 0b ffff7f | Publish("a/b", b"", properties={0x0B: [1, 128, \
    2097151]}) | MQTT-3.3.4-4
5 S | 30 0b 0003 'a/b' 05 0b ffffff7f | Publish("a/b", b"", properties={0x0B: [268435455]}) | 1.5.5
4 C | 40 02 0001 | Ack(4, 1) | 3.4
4 S | 50 02 00ff | Ack(5, 255) | 3.5
4 C | 62 02 ffff | Ack(6, 65535) | 3.6
3 C | 6a 02 0001 | ~ Ack(6, 1) | v3.1 3.6, sent again
4 S | 70 02 0100 | Ack(7, 256) | 3.7
5 C | 40 02 0001 | Ack(4, 1) | 3.4.2.1
5 C | 40 03 0001 00 | ~ Ack(4, 1) | 3.4.2.1
5 C | 40 04 0001 00 00 | ~ Ack(4, 1) | 3.4.2.2
5 C | 40 03 0001 10 | Ack(4, 1, 0x10) | 3.4.2.1
5 C | 50 03 0001 97 | Ack(5, 1, 0x97) | 3.5.2.1
5 S | 62 03 0001 92 | Ack(6, 1, 0x92) | 3.6.2.1
5 S | 70 09 0001 92 05 1f 0002 'no' | Ack(7, 1, 0x92, {0x1F: "no"}) | 3.7.2.2
5 S | 40 0b 0001 00 07 26 0001 'a' 0001 'b' | Ack(4, 1, 0, {0x26: [("a", "b")]}) | 3.4.2.2.3
4 C | 82 06 0001 0001 '#' 00 | Subscribe(1, [("#", 0)]) | 3.8
4 C | 82 13 0001 0003 'a/+' 01 0001 '+' 02 0004 '+/+/' 00 | Subscribe(1, [("a/+", 1), ("+", 2), \
    ("+/+/", 0)]) | MQTT-4.7.1-2
4 C | 82 11 0001 0003 'a/#' 01 0002 '/#' 01 0001 '/' 01 | Subscribe(1, [("a/#", 1), ("/#", 1), ("/", \
    1)]) | MQTT-4.7.1-1
3 C | 8a 06 0001 0001 'a' 00 | ~ Subscribe(1, [("a", 0)]) | v3.1 3.8, sent again
4 C | 82 0d 0001 0008 '$share/g' 00 | Subscribe(1, [("$share/g", 0)]) | v3.1.1 has no shared subscriptions
5 C | 82 07 0001 00 0001 'a' 2e | Subscribe(1, [("a", 0x2E)]) | 3.8.3.1
5 C | 82 13 0001 03 0b 8001 000a '$share/g/a' 01 | Subscribe(1, [("$share/g/a", 1)], {0x0B: [128]}) | 4.8.2
5 C | 82 14 0001 07 26 0001 'a' 0001 'b' 0007 '$shared' 04 | Subscribe(1, [("$shared", 4)], {0x26: \
    [("a", "b")]}) | 3.8.2.1.3
4 S | 90 06 0001 00 01 02 80 | Suback(1, b"\x00\x01\x02\x80") | v3.1.1 3.9.3
5 S | 90 06 0001 00 02 8f a2 | Suback(1, b"\x02\x8f\xa2") | 3.9.3
5 S | 90 08 0001 04 1f 0001 'x' 97 | Suback(1, b"\x97", {0x1F: "x"}) | 3.9.2.1
4 C | a2 08 0001 0001 'a' 0001 '#' | Unsubscribe(1, ["a", "#"]) | 3.10
3 C | aa 05 0001 0001 'a' | ~ Unsubscribe(1, ["a"]) | v3.1 3.10, sent again
5 C | a2 0f 0001 00 000a '$share/g/#' | Unsubscribe(1, ["$share/g/#"]) | 3.10.3
5 C | a2 0d 0001 07 26 0001 'a' 0001 'b' 0001 'a' | Unsubscribe(1, ["a"], {0x26: [("a", "b")]}) | 3.10.2.1
4 S | b0 02 0001 | Unsuback(1) | 3.11
5 S | b0 05 0001 00 00 11 | Unsuback(1, b"\x00\x11") | 3.11.3
5 S | b0 08 0001 04 1f 0001 'x' 87 | Unsuback(1, b"\x87", {0x1F: "x"}) | 3.11.2.1
4 C | c0 00 | Pingreq() | 3.12
4 S | d0 00 | Pingresp() | 3.13
5 C | c0 00 | Pingreq() | 3.12
5 S | d0 00 | Pingresp() | 3.13
4 C | e0 00 | Disconnect() | 3.14
5 C | e0 00 | Disconnect() | 3.14.2.1
5 C | e0 01 00 | ~ Disconnect() | 3.14.2.1
5 C | e0 02 00 00 | ~ Disconnect() | 3.14.2.2.1
5 C | e0 01 04 | Disconnect(4) | 3.14.2.1
5 C | e0 07 00 05 11 ffffffff | Disconnect(0, {0x11: 0xFFFFFFFF}) | 3.14.2.2.2
5 S | e0 0b 9c 09 1f 0001 'x' 1c 0002 'b2' | Disconnect(0x9C, {0x1F: "x", 0x1C: "b2"}) | 3.14.2.2.5
5 S | e0 01 8e | Disconnect(0x8E) | MQTT-3.1.4-3
5 S | f0 00 | Auth() | 3.15.2.1
5 C | f0 0c 18 0a 15 0001 'm' 16 0003 'abc' | Auth(0x18, {0x15: "m", 0x16: b"abc"}) | 3.15.2.2
5 C | f0 06 19 04 15 0001 'm' | Auth(0x19, {0x15: "m"}) | 4.12.1
5 S | f0 06 00 04 15 0001 'm' | Auth(0, {0x15: "m"}) | 3.15.2.2
0 C | 47 45 'T / HTTP/1.1' | 82 | MQTT-3.1.0-1
0 C | 30 05 0001 't' | 82 | MQTT-3.1.0-1
0 C | c0 00 | 82 | MQTT-3.1.0-1
0 C | 11 0e 0004 'MQTT' 04 02 003c 0002 'me' | 81 | MQTT-2.1.3-1
0 C | 10 0e 0004 'MQTX' 04 02 003c 0002 'me' | 84 | MQTT-3.1.2-1
0 C | 10 0f 0004 'mqtt' 05 02 003c 00 0002 'me' | 84 | MQTT-3.1.2-1
0 C | 10 10 0006 'MQIsdp' 04 02 003c 0002 'me' | 84 | MQTT-3.1.2-1
0 C | 10 0e 0004 'MQTT' 03 02 003c 0002 'me' | 84 | MQTT-3.1.2-2
0 C | 10 0f 0004 'MQTT' 06 02 003c 00 0002 'me' | 84 | MQTT-3.1.2-2
0 C | 10 0e 0004 'MQTT' 84 02 003c 0002 'me' | 84 | MQTT-3.1.2-2
0 C | 10 00 | 81 | 2.1.4
0 C | 10 0a 0004 'MQTT' 04 02 003c | 81 | 2.1.4
0 C | 10 0e 0004 'MQTT' 04 03 003c 0002 'me' | 81 | MQTT-3.1.2-3
0 C | 10 0f 0004 'MQTT' 05 03 003c 00 0002 'me' | 81 | MQTT-3.1.2-3
0 C | 10 0e 0004 'MQTT' 04 0a 003c 0002 'me' | 81 | MQTT-3.1.2-13
0 C | 10 0e 0004 'MQTT' 04 22 003c 0002 'me' | 81 | MQTT-3.1.2-15
0 C | 10 15 0004 'MQTT' 05 1e 003c 00 0002 'me' 00 0001 't' 0000 | 81 | MQTT-3.1.2-14
0 C | 10 12 0004 'MQTT' 04 42 003c 0002 'me' 0002 'pw' | 81 | v3.1.1 MQTT-3.1.2-22
0 C | 10 0e 0004 'MQTT' 04 82 003c 0002 'me' | 81 | 2.1.4
0 C | 10 11 0004 'MQTT' 04 02 003c 0002 'me' 0001 'u' | 81 | 2.1.4
0 C | 10 12 0004 'MQTT' 04 06 003c 0002 'me' 0000 0000 | 90 | MQTT-4.7.3-1
0 C | 10 15 0004 'MQTT' 04 06 003c 0002 'me' 0003 'a/+' 0000 | 90 | MQTT-3.3.2-2
0 C | 10 0e 0004 'MQTT' 04 02 003c 0002 c0af | 81 | MQTT-1.5.4-1
0 C | 10 0e 0004 'MQTT' 04 02 003c 0002 'a' 00 | 81 | MQTT-1.5.4-2
0 C | 10 11 0004 'MQTT' 04 82 003c 0000 0003 eda080 | 81 | MQTT-1.5.4-1
0 C | 10 8f80 00 0004 'MQTT' 05 02 003c 00 0002 'me' | 81 | MQTT-1.5.5-1
0 C | 10 12 0004 'MQTT' 05 02 003c 03 21 0000 0002 'me' | 82 | 3.1.2.11.3
0 C | 10 14 0004 'MQTT' 05 02 003c 05 27 00000000 0002 'me' | 82 | 3.1.2.11.4
0 C | 10 11 0004 'MQTT' 05 02 003c 02 17 02 0002 'me' | 82 | 3.1.2.11.7
0 C | 10 11 0004 'MQTT' 05 02 003c 02 19 02 0002 'me' | 82 | 3.1.2.11.6
0 C | 10 19 0004 'MQTT' 05 02 003c 0a 11 00000001 11 00000001 0002 'me' | 82 | 2.2.2.2
0 C | 10 14 0004 'MQTT' 05 02 003c 05 16 0002 'ab' 0002 'me' | 82 | 3.1.2.11.10
0 C | 10 12 0004 'MQTT' 05 02 003c 03 23 0001 0002 'me' | 81 | 2.2.2.2
0 C | 10 11 0004 'MQTT' 05 02 003c 02 04 00 0002 'me' | 81 | 2.2.2.2
0 C | 10 0f 0004 'MQTT' 05 02 003c 7f 0002 'me' | 81 | 2.2.2.1
0 C | 10 12 0004 'MQTT' 05 02 003c 02 21 0001 0002 'me' | 81 | 2.1.4
0 C | 10 1a 0004 'MQTT' 05 06 003c 00 0002 'me' 05 11 00000001 0001 't' 0000 | 81 | 2.2.2.2
0 C | 10 1b 0004 'MQTT' 05 06 003c 00 0002 'me' 06 08 0003 'a/#' 0001 't' 0000 | 82 | MQTT-3.3.2-14
0 C | 10 17 0004 'MQTT' 05 06 003c 00 0002 'me' 02 01 02 0001 't' 0000 | 82 | 3.3.2.3.2
4 C | 10 0e 0004 'MQTT' 04 02 003c 0002 'me' | 82 | MQTT-3.1.0-2
4 C | 30 ffffffff01 | 81 | 2.1.4
5 C | c0 80 80 80 80 00 | 81 | 2.1.4
5 C | c0 80 00 | 81 | MQTT-1.5.5-1
4 C | 00 00 | 81 | 2.1.2
4 C | f0 00 | 81 | 2.1.2
4 C | 20 02 00 00 | 82 | 2.1.2
5 C | 90 04 0001 00 00 | 82 | 2.1.2
5 C | b0 04 0001 00 00 | 82 | 2.1.2
4 C | d0 00 | 82 | 2.1.2
4 S | c0 00 | 82 | 2.1.2
4 S | e0 00 | 82 | 2.1.2
5 S | 82 07 0001 00 0001 'a' 00 | 82 | 2.1.2
5 S | a2 06 0001 00 0001 'a' | 82 | 2.1.2
4 C | 36 05 0001 't' 0001 | 81 | MQTT-3.3.1-4
5 C | 36 06 0001 't' 0001 00 | 81 | MQTT-3.3.1-4
4 C | 38 03 0001 't' | 81 | MQTT-3.3.1-2
4 C | 30 00 | 81 | MQTT-3.3.2-1
4 C | 30 04 0000 'hi' | 90 | MQTT-4.7.3-1
5 C | 30 05 0000 00 'hi' | 82 | 3.3.2.1
5 C | 30 0a 0000 05 02 00000001 'hi' | 82 | 3.3.2.1
4 C | 30 05 0003 'a/+' | 90 | MQTT-3.3.2-2
5 C | 30 06 0003 'a/#' 00 | 90 | MQTT-3.3.2-2
4 C | 30 05 0003 'a' 00 'b' | 81 | MQTT-1.5.4-2
4 C | 30 05 0003 edbfbf | 81 | MQTT-1.5.4-1
4 C | 30 03 0001 ff | 81 | MQTT-1.5.4-1
4 C | 30 06 0004 f4908080 | 81 | MQTT-1.5.4-1
4 C | 30 03 0009 'a' | 81 | 2.1.4
4 C | 32 05 0001 't' 0000 | 82 | MQTT-2.2.1-3
4 C | 32 04 0001 't' 00 | 81 | 2.2.1
5 C | 30 03 0001 't' | 81 | 2.1.4
5 C | 30 07 0001 't' 03 23 0000 | 94 | MQTT-3.3.2-8
5 C | 30 0a 0001 't' 06 23 0001 23 0001 | 82 | 2.2.2.2
5 C | 30 06 0001 't' 02 01 02 | 82 | 3.3.2.3.2
5 C | 30 06 0001 't' 02 0b 01 | 82 | MQTT-3.3.4-6
5 S | 30 06 0001 't' 02 0b 00 | 82 | 3.8.2.1.2
5 S | 30 0a 0001 't' 06 0b 8080808001 | 81 | 1.5.5
5 S | 30 07 0001 't' 03 0b 8000 | 81 | MQTT-1.5.5-1
5 C | 30 0a 0001 't' 06 08 0003 'r/+' | 82 | MQTT-3.3.2-14
5 C | 30 09 0001 't' 05 18 00000001 | 81 | 2.2.2.2
5 C | 30 08 0001 't' 04 1f 0001 'x' | 81 | 2.2.2.2
5 C | 30 08 0001 't' 04 03 0001 ff | 81 | MQTT-1.5.4-1
5 C | 30 0b 0001 't' 07 26 0001 'k' 0001 00 | 81 | MQTT-1.5.4-2
5 C | 30 07 0001 't' 03 26 0000 | 81 | 2.1.4
5 C | 30 06 0001 't' 09 01 01 | 81 | 2.2.2.1
4 C | 41 02 0001 | 81 | MQTT-2.1.3-1
4 C | 40 02 0000 | 82 | MQTT-2.2.1-3
4 C | 50 02 0000 | 82 | MQTT-2.2.1-3
4 C | 40 01 00 | 81 | 2.1.4
4 C | 40 03 0001 00 | 81 | 2.1.4
4 C | 60 02 0001 | 81 | MQTT-3.6.1-1
4 C | 6a 02 0001 | 81 | MQTT-3.6.1-1
5 C | 40 03 0001 92 | 82 | MQTT-3.4.2-1
5 C | 50 03 0001 01 | 82 | MQTT-3.5.2-1
5 C | 62 03 0001 10 | 82 | MQTT-3.6.2-1
5 C | 70 03 0001 80 | 82 | MQTT-3.7.2-1
5 C | 40 06 0001 00 02 01 01 | 81 | 2.2.2.2
5 C | 40 05 0001 00 00 00 | 81 | 2.1.4
5 C | 40 0c 0001 00 08 1f 0001 'a' 1f 0001 'a' | 82 | 2.2.2.2
4 C | 80 06 0001 0001 'a' 00 | 81 | MQTT-3.8.1-1
4 C | 8a 06 0001 0001 'a' 00 | 81 | MQTT-3.8.1-1
4 C | 82 06 0000 0001 'a' 00 | 82 | MQTT-2.2.1-3
4 C | 82 02 0001 | 82 | MQTT-3.8.3-2
5 C | 82 03 0001 00 | 82 | MQTT-3.8.3-2
4 C | 82 05 0001 0001 'a' | 81 | 2.1.4
4 C | 82 06 0001 0001 'a' 03 | 81 | v3.1.1 MQTT-3-8.3-4
4 C | 82 06 0001 0001 'a' 04 | 81 | v3.1.1 MQTT-3-8.3-4
5 C | 82 07 0001 00 0001 'a' 03 | 82 | 3.8.3.1
5 C | 82 07 0001 00 0001 'a' 30 | 82 | 3.8.3.1
5 C | 82 07 0001 00 0001 'a' 40 | 81 | MQTT-3.8.3-5
5 C | 82 07 0001 00 0001 'a' 80 | 81 | MQTT-3.8.3-5
5 C | 82 10 0001 00 000a '$share/g/a' 04 | 82 | MQTT-3.8.3-4
5 C | 82 09 0001 02 0b 00 0001 'a' 00 | 82 | 3.8.2.1.2
5 C | 82 0b 0001 04 0b 01 0b 02 0001 'a' 00 | 82 | 2.2.2.2
5 C | 82 0b 0001 04 1f 0001 'x' 0001 'a' 00 | 81 | 2.2.2.2
4 C | 82 05 0001 0000 00 | 8f | MQTT-4.7.3-1
4 C | 82 08 0001 0003 '#/a' 00 | 8f | MQTT-4.7.1-1
4 C | 82 07 0001 0002 'a#' 00 | 8f | MQTT-4.7.1-1
4 C | 82 07 0001 0002 '##' 00 | 8f | MQTT-4.7.1-1
4 C | 82 07 0001 0002 'a+' 00 | 8f | MQTT-4.7.1-2
4 C | 82 09 0001 0004 '+a/b' 00 | 8f | MQTT-4.7.1-2
4 C | 82 07 0001 0002 '++' 00 | 8f | MQTT-4.7.1-2
4 C | 82 07 0001 0002 'a' 00 00 | 81 | MQTT-1.5.4-2
5 C | 82 0d 0001 00 0007 '$share/' 00 | 8f | MQTT-4.8.2-1
5 C | 82 0f 0001 00 0009 '$share//a' 00 | 8f | MQTT-4.8.2-1
5 C | 82 0e 0001 00 0008 '$share/g' 00 | 8f | MQTT-4.8.2-2
5 C | 82 0f 0001 00 0009 '$share/g/' 00 | 8f | MQTT-4.8.2-2
5 C | 82 11 0001 00 000b '$share/g+/a' 00 | 8f | MQTT-4.8.2-2
5 C | 82 12 0001 00 000c '$share/g/a#/' 00 | 8f | MQTT-4.7.1-1
4 C | a0 05 0001 0001 'a' | 81 | MQTT-3.10.1-1
4 C | a2 02 0001 | 82 | MQTT-3.10.3-2
5 C | a2 03 0001 00 | 82 | MQTT-3.10.3-2
4 C | a2 05 0000 0001 'a' | 82 | MQTT-2.2.1-3
4 C | a2 0c 0001 0003 'a/#' 0003 '#/a' | 8f | MQTT-4.7.1-1
5 C | a2 08 0001 02 0b 01 0001 'a' | 81 | 2.2.2.2
4 C | c1 00 | 81 | MQTT-2.1.3-1
4 C | c0 01 00 | 81 | 2.1.4
4 C | e1 00 | 81 | MQTT-3.14.1-1
4 C | e0 01 00 | 81 | 2.1.4
5 C | e0 01 8e | 82 | MQTT-3.14.2-1
5 C | e0 01 05 | 82 | MQTT-3.14.2-1
5 S | e0 01 04 | 82 | MQTT-3.14.2-1
5 S | e0 07 00 05 11 00000001 | 82 | MQTT-3.14.2-2
5 C | e0 05 00 03 21 0001 | 81 | 2.2.2.2
5 C | f1 00 | 81 | MQTT-3.15.1-1
5 C | f0 00 | 82 | MQTT-3.15.2-1
5 C | f0 06 17 04 15 0001 'm' | 82 | MQTT-3.15.2-1
5 C | f0 02 18 00 | 82 | 3.15.2.2.2
5 C | f0 06 18 04 16 0001 'm' | 82 | 3.1.2.11.10
5 S | f0 06 19 04 15 0001 'm' | 82 | MQTT-3.15.2-1
4 S | 20 02 02 00 | 81 | MQTT-3.2.2-1
4 S | 20 02 01 05 | 82 | MQTT-3.2.2-6
4 S | 20 02 00 06 | 82 | v3.1.1 3.2.2.3
4 S | 20 01 00 | 81 | 2.1.4
5 S | 20 03 01 87 00 | 82 | MQTT-3.2.2-6
5 S | 20 03 00 01 00 | 82 | MQTT-3.2.2-8
5 S | 20 02 00 00 | 81 | 2.1.4
5 S | 20 05 00 00 02 24 02 | 82 | 3.2.2.3.4
5 S | 20 05 00 00 02 25 02 | 82 | 3.2.2.3.5
5 S | 20 05 00 00 02 28 ff | 82 | 3.2.2.3.11
5 S | 20 05 00 00 02 29 02 | 82 | 3.2.2.3.12
5 S | 20 05 00 00 02 2a 02 | 82 | 3.2.2.3.13
5 S | 20 06 00 00 03 21 0000 | 82 | 3.1.2.11.3
4 S | 90 03 0001 03 | 82 | v3.1.1 MQTT-3.9.3-2
4 S | 90 02 0001 | 82 | MQTT-3.8.4-6
5 S | 90 04 0001 00 03 | 82 | MQTT-3.9.3-2
5 S | 90 04 0000 00 00 | 82 | MQTT-2.2.1-3
5 S | b0 04 0001 00 01 | 82 | MQTT-3.11.3-2
5 S | b0 03 0001 00 | 82 | 3.11.3
4 S | b0 03 0001 00 | 81 | 2.1.4
""")

RIGHT = [pytest.param(row, id=f"{row.clause}: {row.means}") for row in TABLE if row.is_right]
WRONG = [
    pytest.param(row, id=f"{row.clause}: v{row.version} {row.wire}") for row in TABLE if not row.is_right
]


@pytest.mark.parametrize("row", RIGHT)
def test_a_right_packet_is_decoded(mqtt: ModuleType, row: Row) -> None:
    decoder = row.decoder(mqtt)
    assert decoder.feed(row.data) == [row.packet(mqtt)]
    assert decoder.version == row.version


@pytest.mark.parametrize("row", RIGHT)
def test_a_right_packet_that_comes_byte_by_byte_is_decoded_with_the_last(mqtt: ModuleType, row: Row) -> None:
    decoder = row.decoder(mqtt)
    given = [decoder.feed(row.data[at : at + 1]) for at in range(len(row.data))]
    assert given == [[]] * (len(row.data) - 1) + [[row.packet(mqtt)]]


@pytest.mark.parametrize("row", RIGHT)
def test_a_packet_is_encoded_in_its_shortest_form(mqtt: ModuleType, row: Row) -> None:
    encoded = mqtt.encode(row.packet(mqtt), row.version)
    if row.means.startswith("~"):
        assert encoded != row.data
        assert len(encoded) <= len(row.data)
    else:
        assert encoded == row.data


@pytest.mark.parametrize("row", WRONG)
def test_a_wrong_packet_is_refused_with_its_reason_and_its_clause(mqtt: ModuleType, row: Row) -> None:
    with pytest.raises(mqtt.ProtocolError) as refused:
        row.decoder(mqtt).feed(row.data)
    fault = refused.value
    assert (fault.reason_code, fault.clause) == (int(row.means, 16), row.clause), str(fault)
    assert fault.packets == []


@pytest.mark.parametrize("row", WRONG)
def test_a_wrong_packet_that_comes_byte_by_byte_is_refused_for_the_same_reason(
    mqtt: ModuleType, row: Row
) -> None:
    decoder = row.decoder(mqtt)

    def trickle() -> None:
        for at in range(len(row.data)):
            assert decoder.feed(row.data[at : at + 1]) == []

    with pytest.raises(mqtt.ProtocolError) as refused:
        trickle()
    assert (refused.value.reason_code, refused.value.clause) == (int(row.means, 16), row.clause)


def test_the_table_has_every_property(mqtt: ModuleType) -> None:
    seen: set[int] = set()
    for param in RIGHT:
        packet = param.values[0].packet(mqtt)
        for carrier in (packet, getattr(packet, "will", None)):
            seen |= set(getattr(carrier, "properties", None) or {})
    assert seen == set(PROPERTY_BY_NUMBER)


def test_the_table_has_every_packet_of_every_version(mqtt: ModuleType) -> None:
    seen = {(type(param.values[0].packet(mqtt)).__name__, param.values[0].version) for param in RIGHT}
    both = "Connect Connack Publish Ack Subscribe Suback Unsubscribe Unsuback Pingreq Pingresp Disconnect"
    assert {(name, version) for name in both.split() for version in (4, 5)} | {("Auth", 5)} <= seen
