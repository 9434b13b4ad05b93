"""A Kafka record reaches MQTT subscribers, and an MQTT message is a Kafka record."""

import time

import pytest
from confluent_kafka import Consumer, Message, Producer

from support.process import BrokerProcess

from .clients import PahoConnection, Properties

PATIENCE_SECONDS = 20.0


def records(broker: BrokerProcess, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        record = consumer.poll(0.2)
        if record is not None and record.error() is None:
            found.append(record)
    consumer.close()
    return found


@pytest.fixture
def mqtt(mqtt_broker: BrokerProcess, topic: str, version: int) -> PahoConnection:
    return PahoConnection(mqtt_broker.doors["mqtt"], f"{topic}-{version}", version)


def test_a_kafka_record_reaches_the_subscribers_of_its_address(
    mqtt_broker: BrokerProcess, mqtt: PahoConnection, topic: str, version: int
) -> None:
    mqtt.subscribe(f"{topic}/+/dev42/#", 1)
    producer = Producer({"bootstrap.servers": mqtt_broker.kafka, "compression.type": "lz4"})
    headers = [("unit", b"C"), ("content-type", b"text/plain")]
    producer.produce(topic, b"21", b"site1/dev42/temp", headers=headers)
    producer.produce(topic, b"99", b"site1/dev43/temp")
    producer.produce(topic, b"22", b"site2/dev42")
    producer.flush(PATIENCE_SECONDS)
    first, second = mqtt.messages(2)
    assert (first.topic, first.payload, first.qos) == (f"{topic}/site1/dev42/temp", b"21", 1)
    assert (second.topic, second.payload) == (f"{topic}/site2/dev42", b"22")
    if version == 5:
        assert first.properties == Properties((("unit", "C"),), "text/plain")
    mqtt.disconnect()


def test_an_mqtt_message_is_a_kafka_record_with_key_and_headers(
    mqtt_broker: BrokerProcess, mqtt: PahoConnection, topic: str, version: int
) -> None:
    said = Properties((("unit", "C"), ("unit", "K")), "text/plain", "answers/here", b"\x01")
    mqtt.publish(f"{topic}/site1/dev42/temp", b"21", 1, properties=said)
    mqtt.publish(topic, b"no key", 1)
    mqtt.publish(f"{topic}/quick", b"fire and forget", 0)
    mqtt.disconnect()
    found = {record.value(): record for record in records(mqtt_broker, topic, 3)}
    assert found[b"21"].key() == b"site1/dev42/temp"
    assert found[b"no key"].key() is None
    assert found[b"no key"].headers() is None
    assert found[b"fire and forget"].headers() == [("fanlog-qos", b"0")]
    if version == 5:
        assert found[b"21"].headers() == [
            ("content-type", b"text/plain"),
            ("mqtt-response-topic", b"answers/here"),
            ("mqtt-correlation-data", b"\x01"),
            ("unit", b"C"),
            ("unit", b"K"),
        ]
