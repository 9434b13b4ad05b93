"""Fanlog, Mosquitto and NATS core side by side: the brokers of the MQTT parts of the benchmark.

All of them run at once, and one at a time is given something to do. A peer that cannot be had is left out,
with the reason; the measurements then show the others. NATS has no QoS 1, and no acknowledgement of a
publish: it takes part where QoS 0 does.
"""

import contextlib
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import load, machine
from bench.brokers import Address, BrokerProcess, Fanlog, create_topic, fanlog_version
from bench.load import LoadError
from bench.peers import NotAvailable, mosquitto, nats
from bench.peers.mosquitto import Mosquitto
from bench.peers.nats import Nats
from bench.peers.stub import Stub
from bench.report import NOT_MEASURED

FANLOG, MOSQUITTO, NATS = "Fanlog", "Mosquitto", "NATS"
LABELS = (FANLOG, MOSQUITTO, NATS)
STUB = "no broker"
DISTURBED_CORES = 0.2


@dataclass(frozen=True, slots=True)
class MqttScale:
    """How much is measured: all of it, or just enough to see that the benchmark works."""

    subscribers: tuple[int, ...]
    payloads: tuple[int, ...]
    rounds: int
    seconds: float
    seconds_of_target: float
    warmup: float
    pairs: int
    idle: int
    stalled: int
    stalled_messages: int


FULL = MqttScale((1, 10, 100, 1000, 5000), (100, 1000), 3, 0.4, 1.0, 0.2, 500, 9000, 1000, 6000)
QUICK = MqttScale((1, 100, 1000), (100,), 1, 0.4, 0.6, 0.2, 50, 500, 50, 500)


class Rival:
    """One broker of the contest, running."""

    def __init__(self, label: str, broker: BrokerProcess) -> None:
        self.label = label
        self.broker = broker

    @property
    def address(self) -> Address:
        return self.broker.mqtt if isinstance(self.broker, Fanlog) else self.broker.address

    def has_qos(self, qos: int) -> bool:
        return qos == 0 or self.label not in (NATS, STUB)

    def make_topic(self, topic: str, durability: str = "os") -> None:
        """The log behind an address, where there is one."""
        if isinstance(self.broker, Fanlog):
            create_topic(self.broker.address, topic, config={"fanlog.durability": durability})

    def settings(self, settings: dict[str, float]) -> dict[str, float]:
        assert self.broker.process is not None
        return {"broker": self.broker.process.pid, "nats": int(self.label == NATS), **settings}

    def pubsub(self, mode: str, topic: str, **settings: float) -> dict[str, float]:
        begun, busy, ours = time.monotonic(), machine.busy_seconds(), self._own_seconds()
        try:
            result = load.pubsub(mode, self.address, topic, self.settings(settings))
        except LoadError as error:
            raise LoadError(f"{error}\nThe log of {self.label} ends: {self.broker.tail()}") from error
        others = (machine.busy_seconds() - busy) - (self._own_seconds() - ours)
        result["others_cores"] = max(others, 0.0) / (time.monotonic() - begun)
        return result

    def _own_seconds(self) -> float:
        """CPU time of the broker and, once they have ended, of its generators."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return self.broker.cpu() + usage.ru_utime + usage.ru_stime


class Contest:
    """Makes the brokers in the run's data directory; knows which ones there are."""

    def __init__(self, data: Path, only: str | None = None, row: str = "") -> None:
        self.data = data
        # Words that a line of the fan-out table must have to be measured.
        self.row = row.split()
        self.makers: dict[str, Callable[[Path], BrokerProcess]] = {}
        self.missing: dict[str, str] = {}
        self._made = 0
        if only in (None, "fanlog"):
            self.makers[FANLOG] = lambda data: Fanlog(data, mqtt=True)
        if only is None:
            self.makers[STUB] = Stub
        for label, maker, look in (
            (MOSQUITTO, Mosquitto, mosquitto.program),
            (NATS, Nats, nats.program),
        ):
            if only not in (None, label.lower()):
                continue
            try:
                look()
                self.makers[label] = maker
            except NotAvailable as reason:
                self.missing[label] = str(reason)
                if only is not None:
                    raise

    def versions(self) -> dict[str, str]:
        told = {FANLOG: fanlog_version, MOSQUITTO: mosquitto.version, NATS: nats.version}
        return {
            label: told[label]()
            if label in self.makers
            else ": ".join(filter(None, [NOT_MEASURED, self.missing.get(label, "")]))
            for label in LABELS
        }

    @contextlib.contextmanager
    def rivals(self, *labels: str) -> Iterator[list[Rival]]:
        with contextlib.ExitStack() as stack:
            rivals = []
            for label in labels or LABELS:
                if label in self.makers:
                    self._made += 1
                    broker = self.makers[label](self.data / f"rival-{self._made}")
                    rivals.append(Rival(label, stack.enter_context(broker)))
            yield rivals


def disturbance(cores: Sequence[float]) -> str:
    """A note on what else the machine did: without it nobody can tell a slow broker from a busy machine."""
    if not cores:
        return "Nothing was measured."
    middle, most = statistics.median(cores), max(cores)
    return (
        f"Meanwhile all other processes of the machine used {middle:.2f} cores (median of the runs; "
        f"{most:.2f} in the worst of them)."
        + (" **That is too much for the rates to be trusted.**" if middle > DISTURBED_CORES else "")
    )


def rotated(rivals: list[Rival], by: int) -> list[Rival]:
    """The rivals in another order each round, so that none always comes first."""
    by %= max(len(rivals), 1)
    return rivals[by:] + rivals[:by]
