"""What the broker says of itself below `$SYS`: served, never stored.

Every few seconds the counters of the doors and of the router are read, and what has changed is announced to
those who subscribed to it; a newcomer is greeted with the last value of each, like a retained message.
The names below `$SYS/broker` are those that MQTT users know from other brokers, `load` is a moving average
per minute over 1, 5 and 15 minutes, and what only Fanlog has is below `$SYS/fanlog`.

Nothing is counted message by message: doors count what they read at once, the router counts per commit.
Of what is sent only publishes count, with the bytes of their frames; acknowledgements and pings do not.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fanlog.router.headers import NO_HEADERS
from fanlog.wire.records import Message

if TYPE_CHECKING:
    from fanlog.router.router import Router

BROKER: Final = "$SYS/broker/"
FANLOG: Final = "$SYS/fanlog/"
_MINUTES: Final = (1, 5, 15)
# Topics whose fan-out is told; those with the most traffic come first.
_TOPICS_MAX: Final = 1000

# Counters by their name below `$SYS/broker`; they only grow.
Counters = Callable[[], Mapping[str, int]]
# What is the case now, by name.
Gauges = Callable[[], Mapping[str, object]]


class Average:
    """Events per minute over some minutes, the recent ones counting most."""

    __slots__ = ("_minutes", "value")

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self.value = 0.0

    def add(self, events: int, seconds: float) -> None:
        rate = events * 60.0 / seconds
        fading = math.exp(-seconds / (60.0 * self._minutes))
        self.value = rate + fading * (self.value - rate)


class Statistics:
    def __init__(
        self,
        router: "Router",
        system: dict[str, Message],
        counters: Counters,
        gauges: Gauges,
        interval_s: float,
    ) -> None:
        self.router = router
        # The last value of every address below `$SYS`.
        self.system = system
        self.counters = counters
        self.gauges = gauges
        self.interval_s = interval_s
        self.loop = asyncio.get_running_loop()
        self.started_at = self._looked_at = self.loop.time()
        self._last: dict[str, int] = {}
        self._loads: dict[str, list[Average]] = {}
        self._topics: dict[str, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._last = dict(self.counters())
        self._tick()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self.loop.call_later(self.interval_s, self._tick)
        now = self.loop.time()
        seconds = max(now - self._looked_at, 0.001)
        self._looked_at = now
        values: dict[str, object] = {BROKER + "uptime": f"{int(now - self.started_at)} seconds"}
        values.update((BROKER + name, value) for name, value in self.gauges().items())
        values.update(self._counted(seconds))
        values.update(self._fanout())
        self.tell(values)

    def _counted(self, seconds: float) -> dict[str, object]:
        counted = self.counters()
        values: dict[str, object] = {}
        for name, count in counted.items():
            grown = count - self._last.get(name, 0)
            values[BROKER + name] = count
            loads = self._loads.get(name)
            if loads is None:
                loads = self._loads[name] = [Average(minutes) for minutes in _MINUTES]
            for minutes, load in zip(_MINUTES, loads, strict=True):
                load.add(grown, seconds)
                values[f"{BROKER}load/{name.replace('/messages/', '/')}/{minutes}min"] = f"{load.value:.2f}"
        for name, counter in (
            ("commands_per_second", "messages/received"),
            ("messages_sent_per_second", "messages/sent"),
        ):
            grown = counted.get(counter, 0) - self._last.get(counter, 0)
            values[FANLOG + name] = f"{grown / seconds:.1f}"
        self._last = dict(counted)
        return values

    def _fanout(self) -> dict[str, object]:
        """How often a message of a topic was sent on, in the mean of the last interval."""
        traffic = self.router.traffic
        busy = []
        for topic in [*traffic]:
            if topic not in self.router.catalog.topics:
                del traffic[topic]
                self._topics.pop(topic, None)
                self.system.pop(f"{FANLOG}topics/{topic}/fanout", None)
                continue
            stored, sent = traffic[topic].stored, traffic[topic].sent
            stored_before, sent_before = self._topics.get(topic, (0, 0))
            if stored > stored_before:
                busy.append((stored - stored_before, sent - sent_before, topic))
            self._topics[topic] = (stored, sent)
        busy.sort(reverse=True)
        return {
            f"{FANLOG}topics/{topic}/fanout": f"{sent / stored:.2f}"
            for stored, sent, topic in busy[:_TOPICS_MAX]
        }

    def tell(self, values: Mapping[str, object]) -> None:
        """Announces what has changed; None takes a value away, and is not announced."""
        news = []
        for address, value in values.items():
            known = self.system.get(address)
            if value is None:
                self.system.pop(address, None)
                continue
            text = str(value).encode()
            if known is None or known.value != text:
                # QoS 0: what is in no log cannot be sent again.
                message = Message(address, None, text, NO_HEADERS, None, 0)
                self.system[address] = message
                news.append(message)
        if news:
            self.router.announce(news)
