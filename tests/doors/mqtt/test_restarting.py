"""Subscriptions of all kinds after a restart of the broker."""

from pathlib import Path

from fanlog.testing import running_broker
from fanlog.wire import mqtt_tables as tables

from .peer import Peer

KEEPING = {"clean": False, "properties": {tables.SESSION_EXPIRY_INTERVAL: 600}}


def test_a_share_group_goes_on_where_it_was(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as running:
        members = [Peer(running.mqtt) for _ in range(2)]
        for number, member in enumerate(members):
            member.connect(f"member-{number}", **KEEPING)
            member.subscribe("$share/g/work/#", qos=1)
        with Peer(running.mqtt) as publisher:
            publisher.connect()
            for number in range(4):
                publisher.publish("work/a", b"%d" % number, 1)
            done = [payload for member in members for payload in member.payloads(2)]
            for member in members:
                member.disconnect()
            for number in range(4, 10):
                publisher.publish("work/a", b"%d" % number, 1)
    with running_broker(data=tmp_path) as running, Peer(running.mqtt) as member:
        assert member.connect("member-1", **KEEPING).session_present
        done += member.payloads(6)
        member.silent()
    assert sorted(done) == [b"%d" % number for number in range(10)]


def test_overlapping_subscriptions_are_still_one(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as running, Peer(running.mqtt) as client:
        client.connect("client", **KEEPING)
        client.subscribe(("t/a", 0), ("t/#", 2))
        with Peer(running.mqtt) as publisher:
            publisher.connect()
            publisher.publish("t/a", b"in flight", 2)
            first = client.message()
            client.cut()
            publisher.publish("t/a", b"while away", 2)
    with running_broker(data=tmp_path) as running, Peer(running.mqtt) as client:
        assert client.connect("client", **KEEPING).session_present
        again = client.message()
        assert (again.packet_id, again.qos, again.dup) == (first.packet_id, 2, True)
        client.acknowledge(again)
        assert client.payloads(1) == [b"while away"]
        client.silent()


def test_retained_messages_are_still_there(tmp_path: Path) -> None:
    said = {tables.CONTENT_TYPE: "text/plain", tables.USER_PROPERTY: [("a", "1")]}
    with running_broker(data=tmp_path) as running, Peer(running.mqtt) as client:
        client.connect()
        client.publish("t/a", b"kept", 2, True, dict(said))
        client.publish("t/b", b"removed", 1, True)
        client.publish("t/b", b"", 1, True)
    with running_broker(data=tmp_path) as running, Peer(running.mqtt) as client:
        client.connect()
        client.subscribe("t/#", qos=2)
        message = client.message()
        client.acknowledge(message)
        assert (message.payload, message.qos, message.retain) == (b"kept", 2, True)
        assert message.properties == said
        client.silent()
