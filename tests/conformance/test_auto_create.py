"""Topics that nobody created."""

import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from conftest import StartBroker
from support.process import BrokerProcess

from .clients import Client, ConfluentClient, Message
from .clients.base import PATIENCE_SECONDS


@pytest.fixture
def unknown() -> str:
    return f"unknown-{uuid.uuid4().hex[:10]}"


def test_a_topic_appears_when_it_is_first_produced_to(client: Client, unknown: str) -> None:
    client.produce(unknown, [Message(b"first", b"k")])

    assert [record.value for record in client.read(unknown, 1)] == [b"first"]


def test_a_consumer_that_must_not_create_topics_creates_none(
    broker: BrokerProcess, admin: AdminClient, unknown: str
) -> None:
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": unknown})  # its default is not to
    consumer.subscribe([unknown])
    message = consumer.poll(PATIENCE_SECONDS)
    consumer.close()

    assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert unknown not in admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_without_auto_create_a_producer_is_told_that_the_topic_is_unknown(start_broker: StartBroker) -> None:
    broker = start_broker("--topics-auto-create=false")
    with pytest.raises(KafkaException) as refused:
        ConfluentClient(broker.kafka).produce("unknown", [Message(b"v", b"k")])

    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    assert "unknown" not in admin.list_topics(timeout=PATIENCE_SECONDS).topics
