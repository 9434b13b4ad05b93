"""What subscribers cost that have nothing to do, and those that do nothing.

Idle: thousands of connections with one subscription each, to an address of its own; the broker's resident
memory before and after, divided. Stalled: subscribers that stop reading while messages of 1 KB are published
as fast as they are acknowledged; the peak of the broker's memory, and how fast they catch up, in order and
without a gap. Buffers of the kernel are in neither figure.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from bench import load
from bench.arena import Step
from bench.contest import FANLOG, LABELS, Contest, MqttScale, Rival
from bench.load import LoadError
from bench.report import NOT_MEASURED, Section, Table, at_most

STALLED_BYTES = 1000
IDLE_BYTES_MAX = 3 * 1024
STALLED_BYTES_MAX = 50 * 10**6


def steps(scale: MqttScale) -> int:
    return 2 * len(LABELS) + 2


def measure(contest: Contest, scale: MqttScale, step: Step) -> Section:
    section = Section("MQTT: idle and stalled subscribers")
    _measure_idle(contest, scale, step, section)
    _measure_stalled(contest, scale, step, section)
    return section


@contextmanager
def _held(rival: Rival, topic: str, count: int, pairs: bool) -> Iterator[None]:
    settings = rival.settings({"subscribers": count, "publishers": 0, "pairs": int(pairs)})
    with load.pubsub_process("idle", rival.address, topic, settings) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            assert process.stderr is not None
            raise LoadError(f"{rival.label}: {process.stderr.read().decode().strip()}")
        yield
        process.communicate(timeout=60)


def _measure_idle(contest: Contest, scale: MqttScale, step: Step, section: Section) -> None:
    columns = ["", "bytes each", "resident before, MB", "resident after, MB"]
    table = Table(f"{scale.idle:,} idle connections with one subscription each", columns)
    for pairs in (True, False):
        # A broker that has held them once has room for them already, so each is measured anew.
        with contest.rivals() as rivals:
            for rival in rivals:
                step(f"{scale.idle:,} idle connections, {rival.label}")
                each = _weigh(rival, scale.idle, pairs, table)
                if rival.label == FANLOG and pairs:
                    what = f"an idle subscriber, one of {scale.idle:,}: at most 3 KiB of broker memory"
                    section.targets.append(at_most(what, each, IDLE_BYTES_MAX, ",.0f"))
    _name_missing(table, [rival.label for rival in rivals], LABELS)
    section.tables.append(table)


def _weigh(rival: Rival, count: int, pairs: bool, table: Table) -> float:
    rival.make_topic("idle")
    # What the first connections load into memory is not the cost of the next.
    with _held(rival, "idle", 100, pairs):
        pass
    before = rival.broker.memory()
    with _held(rival, "idle", count, pairs):
        after = rival.broker.memory()
    each = (after - before) / count
    name = f"{rival.label}, {'an address of its own' if pairs else 'one address for all'}"
    table.rows.append([name, f"{each:,.0f}", f"{before / 1e6:.1f}", f"{after / 1e6:.1f}"])
    return each


def _measure_stalled(contest: Contest, scale: MqttScale, step: Step, section: Section) -> None:
    waiting = scale.stalled * scale.stalled_messages * STALLED_BYTES
    messages = f"{scale.stalled_messages:,} x 1 KB"
    columns = ["", "more memory, MB, while stalled", "until caught up", "publishes/s meanwhile"]
    table = Table(
        f"{scale.stalled:,} subscribers stop reading while {messages} are published",
        [*columns, "caught up after, s", "deliveries/s"],
    )
    with contest.rivals(FANLOG) as rivals:
        for rival in rivals:
            rival.make_topic("stall")
            for qos in (0, 1):
                step(f"stalled subscribers at QoS {qos}, {rival.label}")
                _stall(rival, qos, scale, table, section)
    section.tables.append(table)
    section.notes.append(
        f"What the stalled subscribers have yet to get is {waiting / 1e9:.1f} GB in all. The publisher uses "
        "QoS 1 for both: acknowledgements set its pace. The others are not measured: Mosquitto without a "
        "limit keeps it all in memory, and NATS core has no log to catch up from."
    )


def _stall(rival: Rival, qos: int, scale: MqttScale, table: Table, section: Section) -> None:
    settings: dict[str, float] = {
        "subscribers": scale.stalled,
        "bytes": STALLED_BYTES,
        "qos": qos,
        "window": 100,
        "count": scale.stalled_messages,
    }
    before = rival.broker.memory()
    rival.broker.forget_memory_peak()
    with load.pubsub_process("stall", rival.address, "stall", rival.settings(settings)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while_stalled = 0
        if process.stdout.readline() == b"stalled\n":
            while_stalled = rival.broker.memory_peak() - before
            printed, complaint = process.communicate(b"go\n", timeout=180)
        else:
            complaint = process.stderr.read()
    if process.returncode:
        raise LoadError(f"{rival.label}, stalled subscribers at QoS {qos}: {complaint.decode().strip()}")
    result = json.loads(printed)
    more = rival.broker.memory_peak() - before
    table.rows.append(
        [
            f"{rival.label}, QoS {qos}",
            f"{while_stalled / 1e6:.1f}",
            f"{more / 1e6:.1f}",
            f"{result['published'] / result['publish_seconds']:,.0f}",
            f"{result['seconds']:.1f}",
            f"{result['deliveries'] / result['seconds']:,.0f}",
        ]
    )
    if rival.label == FANLOG:
        what = f"{scale.stalled:,} subscribers that stop reading, QoS {qos}: at most 50 MB of broker memory"
        section.targets.append(at_most(what, more / 1e6, STALLED_BYTES_MAX / 1e6, ".1f"))


def _name_missing(table: Table, measured: list[str], labels: tuple[str, ...]) -> None:
    for label in labels:
        if label not in measured:
            table.rows.append([label, *[NOT_MEASURED] * (len(table.columns) - 1)])
