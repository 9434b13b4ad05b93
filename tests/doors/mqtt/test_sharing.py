"""Shared subscriptions: each message goes to one session of the group."""

from collections import Counter

import pytest

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import NO_LOCAL, Ack, Subscribe
from support.process import wait_for

from .conftest import MakePeer
from .peer import Peer

KEEPING = {"clean": False, "properties": {tables.SESSION_EXPIRY_INTERVAL: 60}}


def collect(peers: list[Peer], count: int) -> list[list[bytes]]:
    """What each of some clients is sent, `count` messages together."""
    found: list[list[bytes]] = [[] for _ in peers]

    def more() -> bool:
        for peer, payloads in zip(peers, found, strict=True):
            while True:
                try:
                    message = peer.next(0.01)
                except AssertionError:
                    break
                peer.acknowledge(message)
                payloads.append(message.payload)
        return sum(map(len, found)) >= count

    wait_for(f"{count} messages", more)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_of_the_group_in_turn(
    peer: MakePeer, name: str, version: int, qos: int
) -> None:
    members = [peer(version=version) for _ in range(3)]
    for member in members:
        assert member.subscribe(f"$share/g/{name}/#", qos=qos).reason_codes == bytes([qos])
    publisher = peer()
    for number in range(30):
        publisher.publish(f"{name}/a", b"%d" % number, qos)
    found = collect(members, 30)
    assert Counter(payload for payloads in found for payload in payloads) == Counter(
        b"%d" % number for number in range(30)
    )
    assert [len(payloads) for payloads in found] == [10, 10, 10]
    for member in members:
        member.silent()


def test_groups_and_other_subscriptions_do_not_share_with_one_another(peer: MakePeer, name: str) -> None:
    clients = [peer() for _ in range(3)]
    clients[0].subscribe(f"$share/one/{name}")
    clients[1].subscribe(f"$share/two/{name}")
    clients[2].subscribe(name)
    peer().publish(name, b"x", 1)
    assert [client.payloads(1) for client in clients] == [[b"x"]] * 3


def test_one_session_may_share_and_subscribe(peer: MakePeer, name: str) -> None:
    client = peer()
    client.subscribe((f"$share/g/{name}", 1), (name, 1))
    peer().publish(name, b"x", 1)
    messages = client.messages(2)
    assert len({message.packet_id for message in messages}) == 2


def test_retained_messages_do_not_greet_shared_subscriptions(peer: MakePeer, name: str) -> None:
    publisher, member = peer(), peer()
    publisher.publish(name, b"kept", 1, retain=True)
    member.subscribe(f"$share/g/{name}", qos=1)
    member.silent()


@pytest.mark.parametrize("filter", ["$share/g", "$share//a", "$share/g+/a", "$share/g/"])
def test_invalid_shares_are_refused(peer: MakePeer, filter: str) -> None:
    client = peer()
    client.send(Subscribe(1, [(filter, 0)]))
    assert client.refused().reason_code == tables.TOPIC_FILTER_INVALID


@pytest.mark.parametrize("filter", ["$share/g", "$share//a", "$share/g/"])
def test_invalid_shares_are_refused_in_3_1_1_too(peer: MakePeer, filter: str) -> None:
    assert peer(version=4).subscribe(filter).reason_codes == b"\x80"


def test_no_local_and_sharing_exclude_each_other(peer: MakePeer) -> None:
    client = peer()
    client.send(Subscribe(1, [("$share/g/a", NO_LOCAL)]))
    assert client.refused().reason_code == tables.PROTOCOL_FAULT


def test_a_member_without_room_is_passed_over(peer: MakePeer, name: str) -> None:
    slow, quick = peer(properties={tables.RECEIVE_MAXIMUM: 1}), peer()
    for member in (slow, quick):
        member.subscribe(f"$share/g/{name}", qos=1)
    publisher = peer()
    for number in range(10):
        publisher.publish(name, b"%d" % number, 1)
    first = slow.message()
    assert len(quick.messages(9)) == 9
    slow.silent()
    slow.acknowledge(first)
    for number in range(4):
        publisher.publish(name, b"%d" % number, 1)
    assert len(collect([slow, quick], 4)[0]) >= 1


def test_a_group_without_room_waits_and_loses_nothing(peer: MakePeer, name: str) -> None:
    members = [peer(properties={tables.RECEIVE_MAXIMUM: 2}) for _ in range(2)]
    for member in members:
        member.subscribe(f"$share/g/{name}", qos=1)
    publisher = peer()
    for number in range(50):
        publisher.publish(name, b"%d" % number, 1)
    found = collect(members, 50)
    assert Counter(payload for payloads in found for payload in payloads) == Counter(
        b"%d" % number for number in range(50)
    )


def test_what_a_member_left_unacknowledged_goes_to_another(peer: MakePeer, name: str) -> None:
    leaving, staying = peer(), peer()
    for member in (leaving, staying):
        member.subscribe(f"$share/g/{name}", qos=1)
    publisher = peer()
    for number in range(10):
        publisher.publish(name, b"%d" % number, 1)
    unacknowledged = leaving.messages(5, acknowledge=False)
    leaving.cut()
    arrived = staying.payloads(10)
    assert set(arrived) >= {message.payload for message in unacknowledged}
    assert Counter(arrived) == Counter(b"%d" % number for number in range(10))
    staying.silent()


def test_what_was_sent_with_qos_2_stays_with_its_session(peer: MakePeer, name: str) -> None:
    leaving, staying = peer(name, **KEEPING), peer()
    for member in (leaving, staying):
        member.subscribe(f"$share/g/{name}/x", qos=2)
    publisher = peer()
    for number in range(4):
        publisher.publish(f"{name}/x", b"%d" % number, 2)
    mine = leaving.messages(2, acknowledge=False)
    leaving.cut()
    assert len(staying.payloads(2)) == 2
    staying.silent()
    again = peer(name, **KEEPING)
    repeated = again.messages(2)
    assert [message.packet_id for message in repeated] == [message.packet_id for message in mine]
    assert all(message.dup for message in repeated)


def test_a_refused_message_is_not_offered_to_another(peer: MakePeer, name: str) -> None:
    refusing, other = peer(), peer()
    refusing.subscribe(f"$share/g/{name}", qos=1)
    publisher = peer()
    publisher.publish(name, b"bad", 1)
    refusing.send(Ack(tables.PUBACK, refusing.message().packet_id, tables.UNSPECIFIED_ERROR))
    other.subscribe(f"$share/g/{name}", qos=1)
    refusing.unsubscribe(f"$share/g/{name}")
    other.silent()


def test_a_group_whose_members_are_all_away_catches_up(peer: MakePeer, name: str) -> None:
    first, second = peer(f"{name}-1", **KEEPING), peer(f"{name}-2", **KEEPING)
    for member in (first, second):
        member.subscribe(f"$share/g/{name}/x", qos=1)
    first.disconnect()
    second.disconnect()
    publisher = peer()
    for number in range(20):
        publisher.publish(f"{name}/x", b"%d" % number, 1)
    again = peer(f"{name}-2", **KEEPING)
    assert again.payloads(20) == [b"%d" % number for number in range(20)]
    again.silent()


def test_a_group_ends_with_its_last_member(peer: MakePeer, name: str, running: RunningBroker) -> None:
    shares = running.broker.mqtt.shares
    first, second = peer(), peer()
    filter = f"$share/g/{name}"
    for member in (first, second):
        member.subscribe(filter, qos=1)
    assert filter in shares
    first.unsubscribe(filter)
    publisher = peer()
    publisher.publish(name, b"for the second", 1)
    assert second.payloads(1) == [b"for the second"]
    first.silent()
    second.cut()
    wait_for("the end of the group", lambda: filter not in shares)
    assert running.broker.router.channels.get(name) is None
