"""Reading what is in the log already, and readers who are slower than the writers."""

import contextlib
import socket
from datetime import UTC, datetime

import pytest

from fanlog.testing import RunningBroker
from fanlog.wire import mqtt_tables as tables
from fanlog.wire.mqtt import Publish, encode
from support.process import wait_for

from .conftest import MakePeer

USER = tables.USER_PROPERTY


def wishes(**said: str) -> dict[int, object]:
    return {USER: [(name.replace("_", "-"), value) for name, value in said.items()] + [("other", "x")]}


def place(message: Publish) -> dict[str, int]:
    return {name: int(value) for name, value in message.properties[USER]}


@pytest.fixture
def filled(peer: MakePeer, name: str) -> str:
    """A topic with ten messages."""
    publisher = peer()
    for number in range(10):
        publisher.publish(f"{name}/a", b"%d" % number, 1)
    return name


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_from_the_earliest_on(peer: MakePeer, filled: str, qos: int) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", qos=qos, properties=wishes(**{"from": "earliest"}))
    assert subscriber.payloads(10) == [b"%d" % number for number in range(10)]
    peer().publish(f"{filled}/a", b"live", 1)
    assert subscriber.payloads(1) == [b"live"]
    subscriber.silent()


def test_from_the_latest_on(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", properties=wishes(**{"from": "latest"}))
    peer().publish(f"{filled}/a", b"live", 1)
    assert subscriber.payloads(1) == [b"live"]


def test_from_an_offset_on(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", properties=wishes(**{"from": "7"}))
    assert subscriber.payloads(3) == [b"7", b"8", b"9"]
    subscriber.silent()


def test_from_an_offset_that_does_not_exist_yet(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", properties=wishes(**{"from": "1000"}))
    peer().publish(f"{filled}/a", b"next", 1)
    assert subscriber.payloads(1) == [b"next"]


@pytest.mark.parametrize("form", ["iso", "milliseconds"])
def test_from_a_time_on(peer: MakePeer, filled: str, form: str) -> None:
    reader = peer()
    reader.subscribe(f"{filled}/#", properties=wishes(**{"from": "earliest", "with_place": "1"}))
    times = [place(message)["timestamp"] for message in reader.messages(10)]
    moment = f"@{times[6]}"
    if form == "iso":
        moment = datetime.fromtimestamp(times[6] / 1000, UTC).isoformat()
    first = times.index(times[6])
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", qos=1, properties=wishes(**{"from": moment}))
    assert subscriber.payloads(10 - first) == [b"%d" % number for number in range(first, 10)]
    subscriber.silent()


def test_from_a_time_to_come(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", properties=wishes(**{"from": "2100-01-01T00:00:00Z"}))
    subscriber.silent()


@pytest.mark.parametrize("text", ["yesterday", "-1", "@x", ""])
def test_from_nowhere_is_refused(peer: MakePeer, filled: str, text: str) -> None:
    answer = peer().subscribe(filled, properties=wishes(**{"from": text}))
    assert answer.reason_codes == bytes([tables.IMPLEMENTATION_SPECIFIC_ERROR])
    assert text in answer.properties[tables.REASON_STRING]


def test_every_message_says_where_it_stands_if_asked_to(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", qos=1, properties=wishes(**{"from": "8", "with_place": "1"}))
    peer().publish(f"{filled}/a", b"live", 1, properties={USER: [("mine", "1")]})
    messages = subscriber.messages(3)
    assert [place(message)["offset"] for message in messages] == [8, 9, 10]
    assert [place(message)["partition"] for message in messages] == [0, 0, 0]
    assert [name for name, _ in messages[2].properties[USER]] == ["mine", "partition", "offset", "timestamp"]
    assert place(messages[0])["timestamp"] <= place(messages[2])["timestamp"]


def test_a_device_that_holds_its_own_offset_misses_nothing(peer: MakePeer, filled: str) -> None:
    following = 0
    seen: list[bytes] = []
    publisher = peer()
    for round in range(4):
        device = peer()
        said = wishes(**{"from": str(following), "with_place": "1"})
        device.subscribe(f"{filled}/#", qos=1, properties=said)
        for message in device.messages(5):
            seen.append(message.payload)
            following = place(message)["offset"] + 1
        device.cut()
        for number in range(4):
            publisher.publish(f"{filled}/a", b"%d" % (10 + 4 * round + number), 1)
    assert seen == [b"%d" % number for number in range(20)]


def test_subscribing_again_from_a_place_goes_there(peer: MakePeer, filled: str) -> None:
    subscriber = peer()
    subscriber.subscribe(f"{filled}/#", qos=1, properties=wishes(**{"from": "8"}))
    assert subscriber.payloads(2) == [b"8", b"9"]
    subscriber.subscribe(f"{filled}/#", qos=1, properties=wishes(**{"from": "9"}))
    assert subscriber.payloads(1) == [b"9"]
    subscriber.silent()


def test_a_share_group_begins_where_its_first_member_says(peer: MakePeer, filled: str) -> None:
    member = peer()
    member.subscribe(f"$share/g/{filled}/#", qos=1, properties=wishes(**{"from": "earliest"}))
    assert member.payloads(10) == [b"%d" % number for number in range(10)]
    member.silent()


def test_a_filter_over_many_topics_reads_all_of_them(peer: MakePeer, name: str) -> None:
    publisher = peer()
    for number in range(12):
        publisher.publish(f"{name}-{number % 4}/many", b"%d" % number, 1)
    subscriber = peer()
    subscriber.subscribe("+/many", qos=1, properties=wishes(**{"from": "earliest"}))
    publisher.publish(f"{name}-new/many", b"12", 1)
    found = [message for message in subscriber.messages(13) if message.topic.startswith(name)]
    assert {int(message.payload) for message in found} == set(range(13))
    subscriber.silent()


# --- slow consumers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_stops_reading_catches_up_in_order(
    peer: MakePeer, name: str, running: RunningBroker, qos: int
) -> None:
    slow, quick, publisher = peer(name), peer(), peer()
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    for subscriber in (slow, quick):
        subscriber.subscribe(f"{name}/x", qos=qos)
    count, body = 3000, b"x" * 4000
    for number in range(count):
        publisher.publish(f"{name}/x", b"%06d" % number + body, qos)
        if number % 100 == 0:
            publisher.silent()
    assert [int(message.payload[:6]) for message in quick.messages(count)] == list(range(count))
    session = running.broker.mqtt.sessions[name]
    waiting = session.connection.transport.get_write_buffer_size()
    assert waiting < 1 << 20, f"{waiting} bytes wait for the slow one"
    assert session.subscriptions[f"{name}/x"].cursor is not None
    assert [int(message.payload[:6]) for message in slow.messages(count)] == list(range(count))
    wait_for("it to be in sync", lambda: session.subscriptions[f"{name}/x"].cursor is None)
    publisher.publish(f"{name}/x", b"live", 1)
    assert slow.payloads(1) == [b"live"]


def test_a_client_that_never_reads_is_cut_off_when_its_time_is_over(
    peer: MakePeer, name: str, running: RunningBroker
) -> None:
    watcher, stuck, publisher = peer(), peer(name, keep_alive_s=1), peer()
    watcher.subscribe(f"{name}/end")
    stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.subscribe(f"{name}/x")
    for _ in range(1500):
        publisher.send(Publish(f"{name}/x", b"x" * 8000))
    publisher.silent()
    wait_for("its end", lambda: name not in running.broker.mqtt.sessions, 15)


def test_a_publisher_that_reads_no_acknowledgements_is_not_read_for_ever(
    peer: MakePeer, name: str, running: RunningBroker
) -> None:
    publisher = peer(name, version=4)
    publisher.publish(f"{name}/x", b"the topic is there", 1)
    connection = running.broker.mqtt.sessions[name].connection
    frame = encode(Publish(f"{name}/x", b"", 1, False, False, 1), 4)
    sent = bytearray()

    def stuck() -> bool:
        with contextlib.suppress(BlockingIOError):
            rest = len(sent) % len(frame)
            count = publisher.socket.send((frame * 5000)[rest:], socket.MSG_DONTWAIT)
            sent.extend(bytes(count))
        return connection.paused

    wait_for("the broker to stop reading", stuck, 20, every=0)
    assert connection.transport.get_write_buffer_size() < 2 << 20
    acknowledgement = 4
    missing = len(sent) // len(frame) * acknowledgement
    while missing > 0:
        missing -= len(publisher.socket.recv(1 << 20))
    wait_for("the broker to read again", lambda: not connection.paused)
