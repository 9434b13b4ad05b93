"""How long a broker with a large partition is away: after a clean stop, and after kill -9.

The partition is filled with batches of 16 KB, which is what the Java producer sends by default, at each
broker's own defaults. Then the broker is killed the moment the last batch is acknowledged, started again,
stopped with SIGTERM and started once more. The clock runs from exec until the partition's end offset is
answered, the same for both; for Fanlog also until it prints that it is ready. Every acknowledged record
must still be there.
"""

import functools
import time
from dataclasses import dataclass, field

from bench import load
from bench.arena import KAFKA_SHORT_SESSIONS, Arena, Scale, Step
from bench.brokers import BrokerError, BrokerProcess, create_topic, end_offset, wait_until_served
from bench.machine import sync_disk
from bench.report import NOT_MEASURED, Section, Table, ratio, show_ratio, spread

BATCH_RECORDS = (
    146  # of 100 B: the most that fit the Java producer's batch.size of 16 KiB, with its 61 B of head
)
RECORD_BYTES = 100
TOPIC = "large"
NAMES = ("Fanlog", "Kafka", KAFKA_SHORT_SESSIONS)


@dataclass(slots=True)
class Times:
    fill: list[float] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    killed_ready: list[float] = field(default_factory=list)
    stopped_ready: list[float] = field(default_factory=list)


def steps(scale: Scale) -> int:
    return 3 * 3 * scale.restarts


def measure(arena: Arena, scale: Scale, step: Step) -> Section:
    times = {name: Times() for name in arena.makers}
    for number in range(scale.restarts):
        for name in arena.makers:
            _one_broker(
                arena.make(name),
                times[name],
                scale,
                functools.partial(_prefixed, step, f"round {number + 1}: {name}"),
            )
    return _section(times, scale)


def _prefixed(step: Step, prefix: str, text: str) -> None:
    step(f"{prefix}, {text}")


def _one_broker(broker: BrokerProcess, times: Times, scale: Scale, step: Step) -> None:
    try:
        broker.start()
        step("filling the partition")
        create_topic(broker.address, TOPIC)
        requests = scale.partition_bytes // (BATCH_RECORDS * (RECORD_BYTES + 10))
        filled = load.produce(
            broker.address,
            TOPIC,
            connections=32,
            records_per_batch=BATCH_RECORDS,
            record_bytes=RECORD_BYTES,
            requests=requests,
        )
        broker.kill()
        times.fill.append(filled["request_bytes"] * requests / filled["total_seconds"] / 1e6)
        sync_disk()
        step("after kill -9")
        _timed_start(broker, requests * BATCH_RECORDS, times.killed, times.killed_ready)
        broker.stop()
        sync_disk()
        step("after SIGTERM")
        _timed_start(broker, requests * BATCH_RECORDS, times.stopped, times.stopped_ready)
    finally:
        broker.kill()
        broker.discard()


def _timed_start(broker: BrokerProcess, records: int, served: list[float], ready: list[float]) -> None:
    begun = time.monotonic()
    ready.append(broker.start())
    served.append(wait_until_served(broker, TOPIC, begun))
    end = end_offset(broker.address, TOPIC)
    if end != records:
        raise BrokerError(f"{broker.name} holds {end} records after its restart, {records} were acknowledged")


def _section(times: dict[str, Times], scale: Scale) -> Section:
    size = f"{scale.partition_bytes / 1e9:.3g} GB"
    table = Table(
        f"Restart with one partition of {size} in batches of 16 KB",
        [
            "",
            "after SIGTERM, s",
            "after kill -9, s",
            "first answer on the port, SIGTERM / kill -9",
            "filling, MB/s",
        ],
    )
    for name in NAMES:
        if name not in times:
            table.rows.append([name, *[NOT_MEASURED] * 4])
            continue
        own = times[name]
        first = f"{spread(own.stopped_ready, '.2f')} / {spread(own.killed_ready, '.2f')}"
        rates = spread(own.fill, ",.0f")
        table.rows.append([name, spread(own.stopped, ".2f"), spread(own.killed, ".2f"), first, rates])
    for name in NAMES[1:]:
        if "Fanlog" in times and name in times:
            ours, theirs = times["Fanlog"], times[name]
            clean, killed = ratio(ours.stopped, theirs.stopped), ratio(ours.killed, theirs.killed)
            table.rows.append([f"Fanlog / {name}", show_ratio(clean), show_ratio(killed), "", ""])
    notes = [
        "From exec to the answer with the partition's end offset; less is better. The page cache is warm: "
        "the files were just written.",
        "Filled through 32 connections with one request outstanding each, at each broker's default: Fanlog's "
        "`disk`, Kafka without fsync. Fanlog's first answer is its ready line.",
        "A Kafka node that was killed cannot register again before its old session has run out "
        "(broker.session.timeout.ms, 9 s by default). The line with sessions of 1 s shows it without most of "
        "that wait.",
    ]
    return Section("Restart", [table], notes)
