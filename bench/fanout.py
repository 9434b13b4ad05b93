"""One publisher, many subscribers: what a message costs once it is to go to many.

The publisher sends a window of messages, and the next when every subscriber has all of them: with a window
of 1 nothing can be batched, with 100 a broker may. Fanlog's topic is at level `os`: each message is in the
log before a subscriber sees it, while the others store nothing. Also 500 publishers with a subscriber each.
"""

import statistics
from collections import defaultdict
from dataclasses import dataclass

from bench.arena import Step
from bench.contest import (
    FANLOG,
    LABELS,
    MOSQUITTO,
    NATS,
    STUB,
    Contest,
    MqttScale,
    Rival,
    disturbance,
    rotated,
)
from bench.report import NOT_MEASURED, Section, Table, Target, at_least, ratio, show_ratio, spread

TOPIC = "fan"
NO_QOS_1 = "no QoS 1"
PAIR_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Row:
    subscribers: int
    qos: int
    payload: int
    window: int
    # As many publishers as subscribers, each with its own address.
    pairs: bool = False

    @property
    def key(self) -> str:
        """What `--row` looks for."""
        publishers = self.subscribers if self.pairs else 1
        target = " target" if self in TARGET_ROWS else ""
        return f"{publishers}->{self.subscribers} qos{self.qos} {self.payload}B w{self.window}{target}"

    @property
    def plain(self) -> bool:
        """Whether the stub takes part: it knows no addresses and no QoS 1, and a few rows are enough."""
        return not self.qos and self in TARGET_ROWS

    @property
    def title(self) -> str:
        publishers = self.subscribers if self.pairs else 1
        return f"{publishers:,} -> {self.subscribers:,}, window {self.window:,}"

    @property
    def full_title(self) -> str:
        return f"{self.title}, QoS {self.qos}, {self.payload:,} B"


@dataclass(frozen=True, slots=True)
class Run:
    rate: float
    broker_cores: float
    publisher_cores: float
    subscriber_cores: float
    others_cores: float

    @property
    def generator_cores(self) -> float:
        return max(self.publisher_cores, self.subscriber_cores)

    @property
    def per_core(self) -> float:
        return self.rate / (self.broker_cores or 1.0)


Runs = dict[tuple[Row, str], list[Run]]

# What the project set itself: a row, a peer, and how many times its deliveries.
TARGETS = (
    (Row(1000, 0, 100, 100), MOSQUITTO, 30.0),
    (Row(1000, 0, 100, 100), NATS, 3.0),
    (Row(1000, 0, 100, 1), MOSQUITTO, 1.5),
    (Row(1000, 0, 100, 1), NATS, 1.0),
    (Row(100, 1, 100, 100), MOSQUITTO, 20.0),
    (Row(1, 0, 100, 1000), MOSQUITTO, 2.0),
    (Row(1, 1, 100, 100), MOSQUITTO, 2.0),
)
TARGET_ROWS = {row for row, _, _ in TARGETS}


def rows(scale: MqttScale) -> list[Row]:
    matrix = [
        Row(subscribers, qos, payload, window)
        for qos in (0, 1)
        for payload in scale.payloads
        for subscribers in scale.subscribers
        for window in (1, 100)
    ]
    matrix += [row for row, _, _ in TARGETS if row not in matrix]
    pairs = [Row(scale.pairs, qos, 100, PAIR_WINDOW, pairs=True) for qos in (0, 1)]
    return matrix + pairs


def steps(scale: MqttScale) -> int:
    return (len(LABELS) + 1) * (len(rows(scale)) + (scale.rounds - 1) * len(TARGET_ROWS))


def measure(contest: Contest, scale: MqttScale, step: Step) -> Section:
    wanted = [row for row in rows(scale) if set(contest.row) <= set(row.key.split())]
    runs: Runs = defaultdict(list)
    with contest.rivals(*LABELS, STUB) as rivals:
        for rival in rivals:
            rival.make_topic(TOPIC)
        for number in range(scale.rounds):
            for row in wanted:
                if number and row not in TARGET_ROWS:
                    continue
                for rival in rotated(rivals, number):
                    step(f"round {number + 1}: {row.full_title}, {rival.label}")
                    if rival.has_qos(row.qos) and (row.plain or rival.label != STUB):
                        runs[row, rival.label].append(one_run(rival, row, scale))
    return _section(runs, wanted)


def one_run(rival: Rival, row: Row, scale: MqttScale) -> Run:
    result = rival.pubsub(
        "rounds",
        TOPIC,
        publishers=row.subscribers if row.pairs else 1,
        subscribers=row.subscribers,
        pairs=int(row.pairs),
        bytes=row.payload,
        qos=row.qos,
        window=row.window,
        warmup=scale.warmup,
        seconds=scale.seconds_of_target if row in TARGET_ROWS else scale.seconds,
    )
    seconds = result["seconds"]
    return Run(
        rate=result["deliveries"] / seconds,
        broker_cores=result["broker_cpu"] / seconds,
        publisher_cores=result["publisher_cpu"] / seconds,
        subscriber_cores=result["subscriber_cpu"] / seconds,
        others_cores=result["others_cores"],
    )


def _section(runs: Runs, wanted: list[Row]) -> Section:
    section = Section("MQTT: fan-out, deliveries per second")
    for pairs in (False, True):
        for qos, payload in dict.fromkeys((row.qos, row.payload) for row in wanted if row.pairs == pairs):
            title = f"QoS {qos}, {payload:,} B" + (", an address for each pair" if pairs else "")
            chosen = [row for row in wanted if (row.qos, row.payload, row.pairs) == (qos, payload, pairs)]
            section.tables.append(_table(title, chosen, runs))
    section.notes = [
        "`/ Mosquitto` and `/ NATS`: how many times their deliveries Fanlog makes, in a second and in a "
        "second of the broker's CPU time.",
        "Every message is stored by Fanlog (level `os`) before it is delivered; Mosquitto and NATS store "
        "nothing.",
        "A subscriber checks the number in each message: a run in which one is lost, doubled or out of order "
        "fails. The last round of a broker that needs over a second for it is cut off, and checked as far "
        "as it went.",
        "The generator is one publishing and one subscribing process with one thread each. That it is not "
        "the limit shows in what the busier of them used of a core (last column), and in the column without "
        "a broker: there a C loop copies the bytes to every subscriber, which is what generator and kernel "
        "allow. With a window of 1 that is a write for each delivery.",
        disturbance([run.others_cores for some in runs.values() for run in some])
        + " On a machine that others use too, the ratio per second of the broker's CPU time is steadier than "
        "that of the rates.",
    ]
    section.targets = [_target(row, peer, limit, runs) for row, peer, limit in TARGETS if row in wanted]
    return section


def _table(title: str, chosen: list[Row], runs: Runs) -> Table:
    columns = ["", *LABELS, "/ Mosquitto", "/ NATS", "/ Mosquitto, per CPU s", "/ NATS, per CPU s"]
    columns += [f"{STUB} at all", "cores: Fanlog, Mosquitto", "generator's cores: with each"]
    table = Table(title, columns)
    for row in chosen:
        by_label = {label: runs.get((row, label), []) for label in (*LABELS, STUB)}
        rates = {label: [run.rate for run in some] for label, some in by_label.items()}
        per_core = {label: [run.per_core for run in some] for label, some in by_label.items()}
        two = [by_label[FANLOG], by_label[MOSQUITTO]]
        table.rows.append(
            [
                row.title,
                *(_cell(row, label, rates[label]) for label in LABELS),
                show_ratio(ratio(rates[FANLOG], rates[MOSQUITTO])),
                "" if row.qos else show_ratio(ratio(rates[FANLOG], rates[NATS])),
                show_ratio(ratio(per_core[FANLOG], per_core[MOSQUITTO])),
                "" if row.qos else show_ratio(ratio(per_core[FANLOG], per_core[NATS])),
                spread(rates[STUB], ",.0f") if rates[STUB] else "",
                ", ".join(_cores([run.broker_cores for run in some]) for some in two),
                ", ".join(_cores([run.generator_cores for run in some]) for some in two),
            ]
        )
    return table


def _cell(row: Row, label: str, rates: list[float]) -> str:
    if rates:
        return spread(rates, ",.0f")
    return NO_QOS_1 if row.qos and label == NATS else NOT_MEASURED


def _cores(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else NOT_MEASURED


def _target(row: Row, peer: str, limit: float, runs: Runs) -> Target:
    ours = [run.rate for run in runs.get((row, FANLOG), [])]
    theirs = [run.rate for run in runs.get((row, peer), [])]
    what = f"{row.full_title}: at least {limit:g} times {peer}'s deliveries"
    return at_least(what, ratio(ours, theirs), limit, ".2f")
