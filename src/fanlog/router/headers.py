"""The record headers that mean something to Fanlog, whichever door a message came through.

    content-type        what the value is
    fanlog-qos          quality of service that the publisher asked for; 1 where it is missing
    fanlog-expires      when the message is of no use any more, milliseconds since 1970, as text
    fanlog-retain       "1" if it was published to be kept as the last of its address
    mqtt-*              what MQTT 5 knows beside: response topic, correlation data, payload format; and, of
                        a message of QoS 2, whose packet it was

All other headers are the publisher's own: user properties to MQTT 5, headers to Kafka.
"""

from typing import Final

from fanlog.wire import records
from fanlog.wire.records import Message, Record

CONTENT_TYPE: Final = "content-type"
QOS: Final = "fanlog-qos"
EXPIRES: Final = "fanlog-expires"
RETAIN: Final = "fanlog-retain"
MQTT_RESPONSE_TOPIC: Final = "mqtt-response-topic"
MQTT_CORRELATION_DATA: Final = "mqtt-correlation-data"
MQTT_PAYLOAD_FORMAT: Final = "mqtt-payload-format"
MQTT_CLIENT: Final = "mqtt-client"
MQTT_PACKET_ID: Final = "mqtt-packet-id"

NO_HEADERS: Final = records.encode_headers(())


def message_of(address: str, record: Record) -> Message:
    """A record as a message on its way to subscribers."""
    message = Message(address, record.key, record.value, NO_HEADERS)
    message.timestamp = record.timestamp
    if record.headers:
        message.headers = records.encode_headers(record.headers)
        for name, value in record.headers:
            if name == QOS and value in (b"0", b"2"):
                message.qos = int(value)
            elif name == EXPIRES and value is not None and value.isdigit():
                message.expires_at_ms = int(value)
            elif name == RETAIN:
                message.retain = value == b"1"
    return message
