"""Seeking by time, and not waiting longer than needed."""

import time

from support.process import wait_for

from .clients import Client, Message
from .clients.base import PATIENCE_SECONDS
from .conftest import Join, MakeTopic


def test_seeking_by_time_finds_the_first_record_at_or_after_it(
    client: Client, confluent: Client, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    start = int(time.time() * 1000) - 3_600_000
    step = 1000
    for first in (0, 40):  # in two batches, so that a time may lie in the middle of one or between them
        messages = [Message(b"%d" % n, b"k", 1, start + n * step) for n in range(first, first + 40)]
        confluent.produce(topic, messages)

    def offset(at: int) -> int | None:
        return client.offset_for_time(topic, 1, at)

    assert offset(start - 1) == 0
    assert offset(start) == 0
    assert offset(start + 17 * step) == 17
    assert offset(start + 17 * step + 1) == 18
    assert offset(start + 39 * step + 1) == 40
    assert offset(start + 79 * step) == 79
    assert offset(start + 79 * step + 1) is None
    assert client.offset_for_time(topic, 0, start) is None, "an empty partition has no record at any time"


def test_reading_can_begin_at_a_time(client: Client, confluent: Client, topic: str) -> None:
    start = int(time.time() * 1000) - 3_600_000
    confluent.produce(topic, [Message(b"%d" % n, b"k", 0, start + n * 1000) for n in range(50)])

    records = client.read(topic, 20, from_time=start + 29_500)

    assert [record.value for record in records] == [b"%d" % n for n in range(30, 50)]


def test_a_waiting_consumer_gets_a_record_long_before_its_poll_would_end(
    client: Client, confluent: Client, topic: str, join: Join
) -> None:
    member = join(client, topic, fetch_wait_ms=5_000)

    def delivered(count: int) -> float:
        """Seconds from the acknowledgement of one more record to its arrival."""
        confluent.produce(topic, [Message(b"%d" % count, b"k")])
        acknowledged = time.monotonic()
        wait_for("the record", lambda: member.check() and len(member.records) == count, PATIENCE_SECONDS)
        return time.monotonic() - acknowledged

    delivered(1)  # joining the group takes its time
    # One record may happen to come just before the consumer asks; of several, most find it waiting.
    assert max(delivered(count) for count in (2, 3, 4)) < 2.0
