"""What clients publish to, and where it is kept.

An address is a path: `sensors/site1/dev42/temp`. Its first level is the topic, the rest is the record's key;
the bare `sensors` has no key. A route is an exception for fleets whose first level is the device: with
`+/telemetry -> telemetry`, `dev42/telemetry` is kept in the topic `telemetry` under the key
`dev42/telemetry`, the whole address.

A first level that cannot be a topic's name (Kafka allows letters, digits, dots, underscores and hyphens, and
the names that begin with `__` are the broker's own) is escaped: `_e_`, then letters, digits and hyphens as
they are, and every other byte as `_` and two hexadecimal digits. The escape can be undone, so nothing is
lost on the way.

A record whose key is no possible end of an address (not UTF-8, with wildcards, or too long) has its
topic's.
"""

import contextlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ESCAPED: Final = "_e_"
_ESCAPE: Final = re.compile(r"_([0-9a-f]{2})")
_NOT_IN_ADDRESSES: Final = re.compile("[+#\x00]")
ADDRESS_BYTES_MAX: Final = 65_535
# As many characters of any kind are no longer than that.
_CHARACTERS_MAX: Final = ADDRESS_BYTES_MAX // 4


class AddressError(ValueError):
    """An address that cannot be published to; the message says why."""


class Place(NamedTuple):
    topic: str
    key: bytes | None


@dataclass(frozen=True, slots=True)
class Route:
    """Addresses that match `filter` are kept in `topic`, under the whole address."""

    filter: str
    topic: str

    def matches(self, address: str) -> bool:
        return matches(self.filter, address)


class Addresses:
    """The rules by which addresses become places and back."""

    def __init__(self, routes: tuple[Route, ...] = ()) -> None:
        self.routes = routes
        self._routed = {route.topic for route in routes}

    def place(self, address: str) -> Place:
        """Where what is published to `address` is kept."""
        for route in self.routes:
            if route.matches(address):
                return Place(route.topic, address.encode())
        first, slash, rest = address.partition("/")
        return Place(topic_name(first), rest.encode() if slash else None)

    def address(self, topic: str, key: bytes | None) -> str:
        """The address of a record, whoever wrote it."""
        text = _readable(key)
        if topic in self._routed:
            return text or level_name(topic)
        if text is None:
            return level_name(topic)
        address = f"{level_name(topic)}/{text}"
        if len(address) > _CHARACTERS_MAX and len(address.encode()) > ADDRESS_BYTES_MAX:
            return level_name(topic)
        return address

    def topics_of(self, filter: str, topics: Collection[str]) -> list[str]:
        """Those of `topics` that may hold records whose address matches `filter`."""
        first = filter.partition("/")[0]
        if first in ("+", "#"):
            return list(topics)
        # There may be many topics, and they are looked for often: no look at each of them.
        candidates = [*self._routed, first]
        with contextlib.suppress(AddressError):
            candidates.append(topic_name(first))
        return [
            topic
            for topic in dict.fromkeys(candidates)
            if topic in topics and (topic in self._routed or level_name(topic) == first)
        ]


def _readable(key: bytes | None) -> str | None:
    if key is None or len(key) > ADDRESS_BYTES_MAX:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return None if _NOT_IN_ADDRESSES.search(text) else text


def topic_name(level: str) -> str:
    """The topic for a first level."""
    if NAME.fullmatch(level) and level not in (".", "..") and not level.startswith(("__", _ESCAPED)):
        return level
    escaped = _ESCAPED + "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte == 0x2D) else f"_{byte:02x}"
        for byte in level.encode()
    )
    if len(escaped) > 249:
        raise AddressError(f"the first level of the address is too long for a topic: {level[:40]!r}...")
    return escaped


def level_name(topic: str) -> str:
    """The first level for a topic."""
    if not topic.startswith(_ESCAPED):
        return topic
    raw = _ESCAPE.sub(lambda found: chr(int(found[1], 16)), topic[len(_ESCAPED) :])
    return raw.encode("latin-1").decode("utf-8", "replace")


def matches(filter: str, address: str) -> bool:
    """Whether a filter with `+` and `#` covers an address. Wildcards do not cover a leading `$`."""
    if address.startswith("$") and filter.startswith(("+", "#")):
        return False
    wanted, given = filter.split("/"), address.split("/")
    for number, level in enumerate(wanted):
        if level == "#":
            return True
        if number >= len(given) or level not in ("+", given[number]):
            return False
    return len(wanted) == len(given)


def parse_routes(text: str) -> tuple[Route, ...]:
    """Routes as they are written in the settings: `+/telemetry -> telemetry, +/status -> status`."""
    routes = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        pattern, arrow, topic = (piece.strip() for piece in part.partition("->"))
        if not arrow or not pattern or not NAME.fullmatch(topic) or topic.startswith("__"):
            raise AddressError(f"{part!r} is not a route: write FILTER -> TOPIC")
        routes.append(Route(pattern, topic))
    return tuple(routes)
