"""Publishing alone: 50 devices, each with its own address, 100 B at QoS 1, a window of 100, no subscriber.

Fanlog stores at each of its levels before it acknowledges; Mosquitto has nowhere to put the messages, and
drops them. All acknowledgements must come, in order.
"""

import statistics
from collections import defaultdict

from bench.arena import Step
from bench.contest import FANLOG, MOSQUITTO, Contest, MqttScale, Rival, disturbance, rotated
from bench.report import NOT_MEASURED, Section, Table, Target, at_least, ratio, show_ratio, spread

PUBLISHERS = 50
WINDOW = 100
LEVELS = ("memory", "os", "disk")
TARGETS = (("os", 1.5), ("disk", 0.8))
Run = dict[str, float]


def label_of(level: str) -> str:
    return f"Fanlog, {level}"


def steps(scale: MqttScale) -> int:
    return scale.rounds * (len(LEVELS) + 1)


def measure(contest: Contest, scale: MqttScale, step: Step) -> Section:
    runs: dict[str, list[Run]] = defaultdict(list)
    with contest.rivals(FANLOG, MOSQUITTO) as rivals:
        for level in LEVELS:
            for rival in rivals:
                rival.make_topic(level, level)
        for number in range(scale.rounds):
            for rival in rotated(rivals, number):
                for level in LEVELS if rival.label == FANLOG else ("devices",):
                    label = label_of(level) if rival.label == FANLOG else rival.label
                    step(f"round {number + 1}: {label}")
                    runs[label].append(_one_run(rival, level, scale))
    return _section(runs)


def _one_run(rival: Rival, topic: str, scale: MqttScale) -> Run:
    return rival.pubsub(
        "ingest",
        topic,
        publishers=PUBLISHERS,
        pairs=1,
        qos=1,
        window=WINDOW,
        warmup=scale.warmup,
        seconds=scale.seconds_of_target,
    )


def _section(runs: dict[str, list[Run]]) -> Section:
    section = Section("MQTT: ingest by 50 publishers, QoS 1, 100 B, window 100")
    table = Table(
        "Publishes acknowledged", ["", "publishes/s", "/ Mosquitto", "broker, cores", "generator, cores"]
    )
    rates = {label: [run["acknowledged"] / run["seconds"] for run in some] for label, some in runs.items()}
    for label in (*map(label_of, LEVELS), MOSQUITTO):
        if label not in runs:
            table.rows.append([label, *[NOT_MEASURED] * 4])
            continue
        table.rows.append(
            [
                label,
                spread(rates[label], ",.0f"),
                "1" if label == MOSQUITTO else show_ratio(ratio(rates[label], rates.get(MOSQUITTO))),
                _cores(runs[label], "broker_cpu"),
                _cores(runs[label], "publisher_cpu"),
            ]
        )
    section.tables.append(table)
    section.notes = [
        "NATS core has no acknowledgement of a publish, so there is nothing to compare with.",
        disturbance([run["others_cores"] for some in runs.values() for run in some]),
    ]
    section.targets = [_target(level, limit, rates) for level, limit in TARGETS]
    return section


def _target(level: str, limit: float, rates: dict[str, list[float]]) -> Target:
    ours = rates.get(label_of(level))
    what = f"ingest by 50 publishers at QoS 1, level {level}: at least {limit:g} of Mosquitto's"
    return at_least(what, ratio(ours or (), rates.get(MOSQUITTO)), limit, ".2f")


def _cores(runs: list[Run], field: str) -> str:
    return f"{statistics.median(run[field] / run['seconds'] for run in runs):.2f}"
