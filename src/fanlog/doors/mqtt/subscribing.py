"""SUBSCRIBE and UNSUBSCRIBE: filters come and go, and retained messages greet the newcomer.

Two user properties of a SUBSCRIBE mean something here. `from` says where in the log to begin: `earliest`,
`latest`, an offset, or a time (ISO 8601, or `@` and milliseconds since 1970); a subscription that is there
already goes to that place. `with-place` = `1` asks for partition, offset and time of every message.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fanlog.doors.mqtt import overlapping, sharing
from fanlog.doors.mqtt.frames import Variant
from fanlog.doors.mqtt.session import Session, Subscription
from fanlog.doors.mqtt.sharing import ShareGroup
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

_RETAIN_ALWAYS, _RETAIN_IF_NEW, _RETAIN_NEVER = range(3)
# User properties of a SUBSCRIBE that mean something here.
FROM = "from"
WITH_PLACE = "with-place"
EARLIEST, LATEST = "earliest", "latest"

# The places where the subscription to a filter begins; None for what comes next.
Positions = dict[Partition, int] | None
Places = dict[str, Positions]


def subscribe(connection: "MqttConnection", packet: Subscribe) -> Coroutine[None, None, None] | None:
    """Handles a SUBSCRIBE; what it returns has to be waited for before anything else is done."""
    place = dict(packet.properties.get(mqtt.USER_PROPERTY, ())).get(FROM)
    if place is None:
        _subscribe(connection, packet, None)
        return None
    router = connection.door.router
    covered = {filter: router.covered(_inner(filter)) for filter, _ in packet.filters}
    if place in (EARLIEST, LATEST) or place.isdecimal():
        places: Places = {}
        for filter, partitions in covered.items():
            places[filter] = None if place == LATEST else {one: _clip(one, place) for one in partitions}
        _subscribe(connection, packet, places)
        return None
    moment = parse_time(place)
    if moment is None:
        codes = bytes([mqtt.IMPLEMENTATION_SPECIFIC_ERROR] * len(packet.filters))
        said = connection.reason(f"from is earliest, latest, an offset or a time, not {place!r}")
        connection.send(encode_suback(connection.version, packet.packet_id, codes, said))
        return None
    return _subscribe_at(connection, packet, covered, moment)


def _clip(partition: Partition, place: str) -> int:
    offset = 0 if place == EARLIEST else int(place)
    return min(max(offset, partition.log_start), partition.high_watermark)


def parse_time(text: str) -> int | None:
    """Milliseconds since 1970 of a time as a client writes it; without a zone it is UTC."""
    if text.startswith("@"):
        return int(text[1:]) if text[1:].isdecimal() else None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


async def _subscribe_at(
    connection: "MqttConnection", packet: Subscribe, covered: dict[str, list[Partition]], moment: int
) -> None:
    places: Places = {}
    for filter, partitions in covered.items():
        positions = {}
        for partition in partitions:
            found = await asyncio.to_thread(partition.find_time, moment)
            positions[partition] = partition.high_watermark if found is None else found[0]
        places[filter] = positions
    _subscribe(connection, packet, places)


def _inner(filter: str) -> str:
    return sharing.inner_filter(filter) if filter.startswith(sharing.PREFIX) else filter


def _subscribe(connection: "MqttConnection", packet: Subscribe, places: Places | None) -> None:
    session = connection.session
    assert session is not None
    wishes = dict(packet.properties.get(mqtt.USER_PROPERTY, ()))
    identifiers = packet.properties.get(mqtt.SUBSCRIPTION_IDENTIFIER) or [0]
    codes = bytearray()
    greeted: list[Subscription] = []
    for filter, options in packet.filters:
        variant = Variant(
            connection.version == mqtt.V5,
            options & QOS_MASK,
            bool(options & RETAIN_AS_PUBLISHED),
            identifiers[0],
            with_place=wishes.get(WITH_PLACE) == "1",
        )
        new = filter not in session.subscriptions
        if filter.startswith(sharing.PREFIX):
            if not sharing.inner_filter(filter):
                codes.append(mqtt.TOPIC_FILTER_INVALID)
                continue
            _share(session, filter, variant, places)
        else:
            subscription = _plain(session, filter, variant, bool(options & NO_LOCAL), places)
            handling = options >> RETAIN_HANDLING_SHIFT & 3
            if handling == _RETAIN_ALWAYS or (handling == _RETAIN_IF_NEW and new):
                greeted.append(subscription)
        codes.append(options & QOS_MASK)
    settle(session)

    def acknowledge() -> None:
        connection.send(encode_suback(connection.version, packet.packet_id, bytes(codes)))
        if session.connection is connection:
            for subscription in greeted:
                greet(session, subscription)

    connection.door.keeper.save_now(session, acknowledge)


def _plain(
    session: Session, filter: str, variant: Variant, no_local: bool, places: Places | None
) -> Subscription:
    known = session.subscriptions.get(filter)
    if known is None:
        known = session.subscriptions[filter] = Subscription(session, filter, variant, no_local)
        _start(known, None if places is None else places[filter])
        overlapping.added(known)
    else:
        # [MQTT-3.8.4-3]: the options change, what is on its way stays.
        known.change(variant, no_local)
        if places is not None:
            known.leave()
            _start(known, places[filter])
    return known


def _share(session: Session, filter: str, variant: Variant, places: Places | None) -> None:
    known = session.subscriptions.get(filter)
    if known is not None:
        known.change(variant, False)
        return
    group = session.door.shares.get(filter)
    if group is None:
        group = session.door.shares[filter] = ShareGroup(session.door, filter)
        session.subscriptions[filter] = group.add(session, variant)
        _start(group, None if places is None else places[filter])
    else:
        session.subscriptions[filter] = group.add(session, variant)


def _start(subscription: Subscription | ShareGroup, positions: Positions) -> None:
    """Begins with what comes next or, if asked for, with what is in the log already."""
    if positions is None:
        subscription.join()
    else:
        subscription.follow(Cursor(subscription, positions))


def settle(session: Session) -> None:
    """Decides how the frames of a session's subscriptions are made.

    Packet identifiers can come from the offsets if nothing else of the session needs any: with a single
    subscription of QoS 1, on a single partition. Frames cannot be shared at all if they have the connection's
    aliases in them, or stand for several subscriptions.
    """
    acknowledged = [one for one in session.subscriptions.values() if one.variant.qos]
    alone = len(acknowledged) == 1 and acknowledged[0].variant.qos == 1 and acknowledged[0].plain
    session.alone = ""
    session.no_local = any(one.no_local for one in session.subscriptions.values())
    if alone:
        filter = acknowledged[0].filter
        session.alone = filter.partition("/")[0]
        alone = filter[0] not in "+#" and len(session.router.covered(filter)) == 1
    for subscription in session.subscriptions.values():
        variant = subscription.variant
        own = session.aliases is not None or bool(subscription.beside) or not subscription.plain
        shared = alone and bool(variant.qos) and not own
        if (variant.own, variant.shared_ids) != (own, shared):
            session.unfold()
            changed = replace(variant, own=own, shared_ids=shared)
            subscription.change(changed, subscription.no_local)


def greet(session: Session, subscription: Subscription) -> None:
    """Sends the retained messages that a subscription covers. [MQTT-3.3.1-6]"""
    found = session.door.retained.matching(subscription.filter)
    if found:
        if session.greetings is None:
            session.greetings = deque()
        session.greetings += [(subscription, message.address) for message in found]
        session.wake()


def unsubscribe(connection: "MqttConnection", packet: Unsubscribe) -> None:
    session = connection.session
    assert session is not None
    codes = bytearray()
    for filter in packet.filters:
        subscription = session.subscriptions.pop(filter, None)
        if subscription is None:
            codes.append(mqtt.NO_SUBSCRIPTION_EXISTED)
        else:
            overlapping.removed(subscription)
            subscription.leave()
            codes.append(mqtt.SUCCESS)
    settle(session)
    answer = encode_unsuback(connection.version, packet.packet_id, bytes(codes))
    connection.door.keeper.save_now(session, lambda: connection.send(answer))
