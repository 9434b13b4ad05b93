"""Subscriptions of one session that overlap, and who of them sends what.

[MQTT-3.3.5-1] asks for the highest quality of service of all that match, and [MQTT-3.3.4-4] for all their
identifiers in a message that is sent once. So each subscription of a session knows those that overlap with
it, and of those that want a message only the oldest sends it, for all of them; it makes its own frames.

A subscription wants what comes after `since`, which is where it was when the overlap began. Somebody who
asks for the past with a second subscription gets it, although the first one has had it long ago.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from fanlog.doors.mqtt.frames import Variant
from fanlog.log.partition import Partition
from fanlog.router.addresses import matches
from fanlog.router.cursor import Cursor
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.doors.mqtt.session import Session, Subscription


def overlap(one: str, other: str) -> bool:
    """Whether some address matches both filters."""
    ours, theirs = one.split("/"), other.split("/")
    if "$" in (one[0], other[0]) and (one[0] in "+#" or other[0] in "+#"):
        return False
    for mine, yours in zip(ours, theirs, strict=False):
        if mine == "#" or yours == "#":
            return True
        if mine != yours and mine != "+" and yours != "+":
            return False
    longer = ours if len(ours) > len(theirs) else theirs
    shorter = min(len(ours), len(theirs))
    # `a/#` covers `a` too.
    return len(ours) == len(theirs) or (len(longer) == shorter + 1 and longer[-1] == "#")


def added(subscription: "Subscription") -> None:
    """Finds those that a new subscription overlaps with."""
    session = subscription.session
    candidates = list(session.wild.values()) if session.wild else []
    if is_wild(subscription.filter):
        candidates = list(session.subscriptions.values())
        session.wild = session.wild or {}
        session.wild[subscription.filter] = subscription
    found = [
        one
        for one in candidates
        if one is not subscription and one.plain and overlap(one.filter, subscription.filter)
    ]
    if not found:
        return
    for one in (*found, subscription):
        if one.since is None:
            one.since = dict(one.positions() if one.cursor is None else one.cursor.positions)
    subscription.beside = tuple(found)
    for one in found:
        one.beside = (*one.beside, subscription)
        settle_qos(one)
    settle_qos(subscription)


def removed(subscription: "Subscription") -> None:
    """A subscription goes; what it has not sent yet for others, they read for themselves."""
    wild = subscription.session.wild
    if wild is not None:
        wild.pop(subscription.filter, None)
    behind = subscription.cursor.positions if subscription.cursor is not None else {}
    for one in subscription.beside:
        one.beside = tuple(other for other in one.beside if other is not subscription)
        settle_qos(one)
        positions = dict(one.positions() if one.cursor is None else one.cursor.positions)
        owed = {
            partition: offset
            for partition, offset in behind.items()
            if offset < positions.get(partition, 0) and one.order > subscription.order
        }
        if owed:
            one.leave()
            one.follow(Cursor(one, positions | owed))
    subscription.beside = ()


def settle_qos(subscription: "Subscription") -> None:
    """What a subscription has to have room for is the highest QoS among those it sends for."""
    for one in (subscription, *subscription.beside):
        one.qos = max(one.variant.qos, *(other.variant.qos for other in one.beside), 0)


def is_wild(filter: str) -> bool:
    return "+" in filter or "#" in filter


def variant_for(
    subscription: "Subscription", message: Message, partition: Partition, offset: int
) -> Variant | None:
    """How a message is sent for all subscriptions that want it; None if an older one sends it."""
    wanting = [
        one for one in subscription.beside if _wants(one, subscription.session, message, partition, offset)
    ]
    if any(one.order < subscription.order for one in wanting):
        return None
    if not wanting:
        return subscription.variant
    variants = [one.variant for one in wanting]
    return replace(
        subscription.variant,
        qos=max(subscription.variant.qos, *(one.qos for one in variants)),
        retain_as_published=subscription.variant.retain_as_published
        or any(one.retain_as_published for one in variants),
        with_place=subscription.variant.with_place or any(one.with_place for one in variants),
        more_ids=tuple(one.subscription_id for one in variants if one.subscription_id),
    )


def _wants(
    one: "Subscription", session: "Session", message: Message, partition: Partition, offset: int
) -> bool:
    return (
        one.since is not None
        and offset >= one.since.get(partition, 0)
        and matches(one.filter, message.address)
        and not (one.no_local and session.published(message))
    )
