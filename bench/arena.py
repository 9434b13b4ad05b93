"""The brokers of one run, and the ways in which each is measured.

A `Variant` is a broker together with the topic configuration that decides what its acknowledgements mean.
Kafka is left out, with the reason, where it cannot be had; the measurements then show Fanlog alone.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Broker, BrokerProcess, Fanlog, fanlog_version
from bench.machine import kcat_version
from bench.peers import NotAvailable, kafka
from bench.peers.kafka import Kafka
from bench.report import NOT_MEASURED

FANLOG_OS, FANLOG_DISK = "Fanlog, os", "Fanlog, disk"
KAFKA, KAFKA_FLUSHED = "Kafka, default", "Kafka, flush.messages=1"
KAFKA_SHORT_SESSIONS = "Kafka, sessions of 1 s"
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Variant:
    label: str
    broker: Broker
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: all of it, or just enough to see that the benchmark works."""

    records: int
    rounds: int
    producer_rounds: int
    producer_seconds: float
    warmup_seconds: float
    producers: tuple[int, ...]
    client_records: int
    partition_bytes: int
    restarts: int


FULL = Scale(2_000_000, 5, 3, 2.0, 0.8, (1, 64, 1000), 200_000, 2 * 10**9, 2)
QUICK = Scale(100_000, 1, 1, 0.5, 0.2, (1, 64), 20_000, 50 * 10**6, 1)


class Arena:
    """Makes brokers in the run's data directory; knows which ones there are."""

    def __init__(self, data: Path, only: str | None = None) -> None:
        self.data = data
        self.makers: dict[str, Callable[[Path], BrokerProcess]] = {}
        self.missing = ""
        self._made = 0
        if only in (None, "fanlog"):
            self.makers["Fanlog"] = Fanlog
        if only in (None, "kafka"):
            try:
                Kafka(data / "probe")
                self.makers["Kafka"] = Kafka
                self.makers[KAFKA_SHORT_SESSIONS] = functools.partial(Kafka, extra=kafka.SHORT_SESSIONS)
            except NotAvailable as reason:
                self.missing = str(reason)
                if only == "kafka":
                    raise

    def versions(self) -> dict[str, str]:
        ours = fanlog_version() if "Fanlog" in self.makers else NOT_MEASURED
        return {"kcat": kcat_version(), "Fanlog": ours, "Kafka": self._kafka_version()}

    def _kafka_version(self) -> str:
        if "Kafka" in self.makers:
            return f"{kafka.version()} (KRaft, one node, 1 GiB of heap), {kafka.java_version()}"
        return f"{NOT_MEASURED}: {self.missing}" if self.missing else NOT_MEASURED

    def make(self, name: str) -> BrokerProcess:
        self._made += 1
        return self.makers[name](self.data / f"broker-{self._made}")

    @contextlib.contextmanager
    def variants(self, *labels: str) -> Iterator[list[Variant]]:
        """The brokers, running, in the variants asked for as far as they can be had."""
        configs = {
            FANLOG_OS: ("Fanlog", {"fanlog.durability": "os"}),
            FANLOG_DISK: ("Fanlog", {"fanlog.durability": "disk"}),
            KAFKA: ("Kafka", {}),
            KAFKA_FLUSHED: ("Kafka", {"flush.messages": "1"}),
        }
        with contextlib.ExitStack() as stack:
            wanted = {configs[label][0] for label in labels} & self.makers.keys()
            running = {name: stack.enter_context(self.make(name)) for name in sorted(wanted)}
            yield [
                Variant(label, running[name], config)
                for label, (name, config) in configs.items()
                if label in labels and name in running
            ]


def rotated(variants: list[Variant], by: int) -> list[Variant]:
    """The variants in another order each round, so that none always comes first."""
    by %= len(variants)
    return variants[by:] + variants[:by]
