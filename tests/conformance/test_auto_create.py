"""Topics that nobody created."""

import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from conftest import StartBroker
from support.process import BrokerProcess

from .clients import Client, Message
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
    # A new topic might still be on its way to the broker, so the producer does not give up at once.
    producer = Producer({"bootstrap.servers": broker.kafka, "topic.metadata.propagation.max.ms": 500})
    errors: list[KafkaError] = []
    producer.produce("unknown", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_SECONDS)

    assert [error.code() for error in errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    assert "unknown" not in admin.list_topics(timeout=PATIENCE_SECONDS).topics
