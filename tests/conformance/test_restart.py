"""Groups outlive the broker: what they committed, and who is in them."""

import uuid

import pytest

from conftest import StartBroker
from support.process import wait_for

from .clients import Client, ConfluentClient, KafkaPythonClient, Membership, Message
from .clients.base import PATIENCE_SECONDS


def numbered(first: int, count: int = 10) -> list[Message]:
    return [Message(b"%d" % n, b"k") for n in range(first, first + count)]


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_a_group_committed_is_known_after_a_restart(start_broker: StartBroker, ending: str) -> None:
    broker = start_broker()
    client = ConfluentClient(broker.kafka)
    membership = Membership("committed", f"topic-{uuid.uuid4().hex[:10]}")
    client.produce(membership.topic, numbered(0))
    before = client.join(membership)
    wait_for("the commit", lambda: before.check() and before.committed == 10, PATIENCE_SECONDS)
    before.close()

    getattr(broker, ending)()
    broker.start()
    client.produce(membership.topic, numbered(10))
    after = client.join(membership)
    wait_for("the new records", lambda: after.check() and b"19" in after.values(), PATIENCE_SECONDS)
    after.close()

    assert after.values() == [message.value for message in numbered(10)]


@pytest.mark.parametrize("kind", [ConfluentClient, KafkaPythonClient], ids=lambda kind: kind.name)
def test_members_go_on_after_the_broker_was_killed_without_reading_anything_twice(
    start_broker: StartBroker, kind: type[Client]
) -> None:
    broker = start_broker()
    client = kind(broker.kafka)
    topic = f"topic-{uuid.uuid4().hex[:10]}"
    client.produce(topic, numbered(0))
    member = client.join(Membership("staying", topic, session_timeout_ms=30_000))
    wait_for("the commit", lambda: member.check() and member.committed == 10, PATIENCE_SECONDS)
    assignments = member.assignments_seen

    broker.kill()
    broker.start()
    client.produce(topic, numbered(10))
    wait_for("the new records", lambda: member.check() and b"19" in member.values(), PATIENCE_SECONDS)
    member.close()

    assert member.values() == [message.value for message in numbered(0, 20)]
    assert member.assignments_seen == assignments, "the group was as it had been: nothing to assign anew"
