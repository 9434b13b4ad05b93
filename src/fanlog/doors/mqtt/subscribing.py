"""SUBSCRIBE and UNSUBSCRIBE: filters come and go, and retained messages greet the newcomer."""

from typing import TYPE_CHECKING

from fanlog.doors.mqtt.frames import Variant
from fanlog.doors.mqtt.session import Subscription
from fanlog.log.partition import Partition
from fanlog.router.cursor import Cursor
from fanlog.wire import mqtt_tables as mqtt
from fanlog.wire.mqtt import (
    NO_LOCAL,
    QOS_MASK,
    RETAIN_AS_PUBLISHED,
    RETAIN_HANDLING_SHIFT,
    Subscribe,
    Unsubscribe,
    encode_suback,
    encode_unsuback,
)

if TYPE_CHECKING:
    from fanlog.doors.mqtt.connection import MqttConnection

_SHARE = "$share/"
_RETAIN_ALWAYS, _RETAIN_IF_NEW, _RETAIN_NEVER = range(3)
# User properties of a SUBSCRIBE that mean something here.
FROM = "from"
WITH_PLACE = "with-place"


def subscribe(connection: "MqttConnection", packet: Subscribe) -> None:
    session = connection.session
    assert session is not None
    wishes = dict(packet.properties.get(mqtt.USER_PROPERTY, ()))
    identifiers = packet.properties.get(mqtt.SUBSCRIPTION_IDENTIFIER) or [0]
    codes = bytearray()
    greeted: list[tuple[Subscription, bool]] = []
    for filter, options in packet.filters:
        if filter.startswith(_SHARE):
            codes.append(mqtt.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED if connection.version == mqtt.V5 else 0x80)
            continue
        variant = Variant(
            connection.version == mqtt.V5,
            options & QOS_MASK,
            bool(options & RETAIN_AS_PUBLISHED),
            identifiers[0],
            with_place=wishes.get(WITH_PLACE) == "1",
        )
        known = session.subscriptions.get(filter)
        if known is None:
            known = Subscription(session, filter, variant, bool(options & NO_LOCAL))
            session.subscriptions[filter] = known
            start(known, wishes.get(FROM))
            new = True
        else:
            # [MQTT-3.8.4-3]: the options change, what is on its way stays.
            known.change(variant, bool(options & NO_LOCAL))
            new = False
        codes.append(options & QOS_MASK)
        handling = options >> RETAIN_HANDLING_SHIFT & 3
        if handling == _RETAIN_ALWAYS or (handling == _RETAIN_IF_NEW and new):
            greeted.append((known, new))
    share_ids(connection)

    def acknowledge() -> None:
        connection.write(encode_suback(connection.version, packet.packet_id, bytes(codes)))
        if session.connection is connection:
            for subscription, _ in greeted:
                greet(connection, subscription)

    connection.door.keeper.save_now(session, acknowledge)


def start(subscription: Subscription, place: str | None) -> None:
    """Begins with what comes next or, if asked for, with what is in the log already."""
    router = subscription.session.router
    if place is None or place == "latest":
        subscription.join()
        return
    positions: dict[Partition, int] = {}
    for partition in router.covered(subscription.filter):
        if place.isdigit():
            positions[partition] = min(max(int(place), partition.log_start), router.delivered(partition))
        else:
            positions[partition] = partition.log_start
    subscription.follow(Cursor(subscription, positions))


def share_ids(connection: "MqttConnection") -> None:
    """Decides whether packet identifiers can come from the offsets: not if two streams could collide."""
    session = connection.session
    assert session is not None
    acknowledged = [one for one in session.subscriptions.values() if one.variant.qos]
    alone = len(acknowledged) == 1 and acknowledged[0].variant.qos == 1
    if alone:
        alone = len(session.router.covered(acknowledged[0].filter)) == 1
        alone = alone and acknowledged[0].filter[0] not in "+#"
    for subscription in acknowledged:
        variant = subscription.variant
        if variant.shared_ids != alone:
            session.unfold()
            if alone and session.flights:
                continue
            changed = Variant(
                variant.v5,
                variant.qos,
                variant.retain_as_published,
                variant.subscription_id,
                alone,
                variant.with_place,
            )
            subscription.change(changed, subscription.no_local)


def greet(connection: "MqttConnection", subscription: Subscription) -> None:
    """Sends the retained messages that a new subscription covers. [MQTT-3.3.1-6]"""
    found = connection.door.retained.matching(subscription.filter)
    if found:
        subscription.give_retained(found)


def unsubscribe(connection: "MqttConnection", packet: Unsubscribe) -> None:
    session = connection.session
    assert session is not None
    codes = bytearray()
    for filter in packet.filters:
        subscription = session.subscriptions.pop(filter, None)
        if subscription is None:
            codes.append(mqtt.NO_SUBSCRIPTION_EXISTED)
        else:
            subscription.leave()
            codes.append(mqtt.SUCCESS)
    share_ids(connection)
    answer = encode_unsuback(connection.version, packet.packet_id, bytes(codes))
    connection.door.keeper.save_now(session, lambda: connection.write(answer))
