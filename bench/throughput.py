"""Many records through one connection: what a broker's CPU buys, in and out.

kcat sends a file of 100 B lines to one partition, and reads them back to /dev/null, at librdkafka's
defaults. kcat itself takes more than a core to do so, and would hide a difference between brokers; so the
same is measured with generators that do next to nothing per record (whole batches sent again and again;
only the heads of batches read). A last, small table shows what a Python program sees. After each run the
partition's end offset is checked.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer

from bench import load
from bench.arena import FANLOG_DISK, FANLOG_OS, KAFKA, Arena, Scale, Step, Variant, rotated
from bench.brokers import Broker, BrokerError, create_topic, end_offset
from bench.machine import sync_disk
from bench.report import NOT_MEASURED, Section, Table, at_least, at_most, ratio, show_ratio, spread

RECORD_BYTES = 100
BATCH_RECORDS = 1_000
READINGS = 3  # a reading takes well under a second, so one alone would show whatever else the machine did


@dataclass(frozen=True, slots=True)
class Run:
    """One pass over all the records, by one client."""

    records: int
    seconds: float
    broker_cpu: float
    client_cpu: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return self.broker_cpu / self.records * 1e6


Runs = dict[tuple[str, str], list[Run]]  # by (what was done, variant)


def steps(scale: Scale) -> int:
    return 4 + 3 * scale.rounds + 3


def measure(arena: Arena, scale: Scale, step: Step) -> Section:
    step("writing the input file")
    lines = arena.data / "lines"
    write_lines(lines, scale.records)
    runs: Runs = defaultdict(list)
    with arena.variants(FANLOG_OS, FANLOG_DISK, KAFKA) as variants:
        for variant in variants:
            step(f"warming up {variant.label}")
            _one_round(
                variant,
                f"warm-{variant.config.get('fanlog.durability', 'up')}",
                lines,
                scale,
                defaultdict(list),
            )
        for number in range(scale.rounds):
            for variant in rotated(variants, number):
                step(f"round {number + 1}: {variant.label}")
                _one_round(variant, f"round-{number}-{variants.index(variant)}", lines, scale, runs)
        for variant in variants:
            step(f"a Python client: {variant.label}")
            _python_client(variant, f"python-{variants.index(variant)}", scale.client_records, runs)
        memory = {variant.broker.name: variant.broker.memory_peak() for variant in variants}
    lines.unlink()
    section = _section(runs, [variant.label for variant in variants], scale)
    section.tables.append(Table("Peak of resident memory over all of the above", ["", "MB"]))
    section.tables[-1].rows = [[name, f"{peak / 1e6:,.0f}"] for name, peak in memory.items()]
    return section


def write_lines(file: Path, records: int) -> None:
    """Lines of 100 B, each with its number, that do not compress to nothing."""
    filling = "".join(chr(97 + (i * i * 7 + i * 3) % 26) for i in range(RECORD_BYTES - 10))
    with file.open("w") as out:
        for start in range(0, records, 10_000):
            out.write("".join(f"{i:010d}{filling}\n" for i in range(start, min(start + 10_000, records))))


def _one_round(variant: Variant, topic: str, lines: Path, scale: Scale, runs: Runs) -> None:
    broker, records, label = variant.broker, scale.records, variant.label
    create_topic(broker.address, topic, config=variant.config)
    sync_disk()
    runs["kcat in", label].append(_kcat(broker, records, "-P", "-t", topic, "-p", "0", "-l", str(lines)))
    _expect_end(broker, topic, records)
    # Without -e: kcat ends only when it has seen them all.
    reading = ["-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(records)]
    for _ in range(READINGS):
        runs["kcat out", label].append(_kcat(broker, records, *reading))

    topic += "-bare"
    create_topic(broker.address, topic, config=variant.config)
    sync_disk()
    before = broker.cpu()
    sent = load.produce(
        broker.address,
        topic,
        connections=4,
        records_per_batch=BATCH_RECORDS,
        record_bytes=RECORD_BYTES,
        requests=records // BATCH_RECORDS,
    )
    runs["bare in", label].append(Run(records, sent["total_seconds"], broker.cpu() - before, sent["cpu"]))
    _expect_end(broker, topic, records)
    for _ in range(READINGS):
        before = broker.cpu()
        read = load.fetch(broker.address, topic, records)
        runs["bare out", label].append(Run(records, read["seconds"], broker.cpu() - before, read["cpu"]))


def _kcat(broker: Broker, records: int, *arguments: str) -> Run:
    before = broker.cpu()
    done = load.kcat(broker.address, *arguments)
    return Run(records, done.seconds, broker.cpu() - before, done.client_cpu)


def _expect_end(broker: Broker, topic: str, records: int) -> None:
    end = end_offset(broker.address, topic)
    if end != records:
        raise BrokerError(f"{broker.name}: {topic} ends at {end} after {records} records were acknowledged")


def _python_client(variant: Variant, topic: str, records: int, runs: Runs) -> None:
    """confluent-kafka at its defaults, a record at a time in, lists of records out."""
    broker = variant.broker
    create_topic(broker.address, topic, config=variant.config)
    servers = {"bootstrap.servers": f"{broker.address[0]}:{broker.address[1]}"}
    value = b"x" * RECORD_BYTES
    cpu, own, start = broker.cpu(), time.process_time(), time.monotonic()
    producer = Producer(servers)
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    runs["python in", variant.label].append(
        Run(records, time.monotonic() - start, broker.cpu() - cpu, time.process_time() - own)
    )
    _expect_end(broker, topic, records)
    cpu, own, start = broker.cpu(), time.process_time(), time.monotonic()
    consumer = Consumer({**servers, "group.id": "bench", "enable.auto.commit": False})
    _assign_from_start(consumer, topic)
    seen = 0
    while seen < records and time.monotonic() - start < 60:
        seen += sum(message.error() is None for message in consumer.consume(10_000, 1))
    taken = time.monotonic() - start
    runs["python out", variant.label].append(Run(seen, taken, broker.cpu() - cpu, time.process_time() - own))
    consumer.close()
    if seen < records:
        raise BrokerError(f"{broker.name}: a Python consumer saw {seen} of {records} records in 60 s")


def _assign_from_start(consumer: Consumer, topic: str) -> None:
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, 0, 0)])


def _section(runs: Runs, labels: list[str], scale: Scale) -> Section:
    section = Section(f"Throughput: {scale.records:,} records of {RECORD_BYTES} B, one partition")
    for title, what in (
        ("kcat producing", "kcat in"),
        ("kcat consuming", "kcat out"),
        (f"Producing by a bare generator, 4 connections, batches of {BATCH_RECORDS:,} records", "bare in"),
        ("Consuming by a bare generator, 1 connection", "bare out"),
        (f"confluent-kafka in Python producing, {scale.client_records:,} records", "python in"),
        (f"confluent-kafka in Python consuming, {scale.client_records:,} records", "python out"),
    ):
        section.tables.append(_table(title, {label: runs[what, label] for label in labels}))
    section.notes = [
        "Kafka at its defaults does not fsync before it acknowledges, which is Fanlog's level `os`; "
        "Fanlog's default is `disk`.",
        "Broker CPU is user and system time of the whole process. Each was warmed up with a full round.",
        "kcat costs more CPU than the brokers do (client CPU against wall time); the bare generators show "
        "what it hides.",
    ]
    kafka_in, kafka_out = runs.get(("kcat in", KAFKA)), runs.get(("kcat out", KAFKA))
    for label in (FANLOG_OS, FANLOG_DISK):
        if label in labels:
            ours_in, ours_out = runs["kcat in", label], runs["kcat out", label]
            of_two_million = 2_000_000 / scale.records
            section.targets += [
                at_most(
                    f"kcat, 2 M records in: at most 1.5 s of broker CPU ({label})",
                    _median([run.broker_cpu for run in ours_in]) * of_two_million,
                    1.5,
                    ".2f",
                ),
                at_most(
                    f"kcat, 2 M records out: at most 1 s of broker CPU ({label})",
                    _median([run.broker_cpu for run in ours_out]) * of_two_million,
                    1.0,
                    ".2f",
                ),
                at_least(
                    f"kcat in: at least 0.8 of Kafka's throughput ({label})",
                    _rates(ours_in, kafka_in),
                    0.8,
                    ".2f",
                ),
                at_least(
                    f"kcat out: at least 0.8 of Kafka's throughput ({label})",
                    _rates(ours_out, kafka_out),
                    0.8,
                    ".2f",
                ),
            ]
    return section


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _rates(ours: list[Run], theirs: list[Run] | None) -> float | None:
    return ratio([run.rate for run in ours], [run.rate for run in theirs or []])


def _table(title: str, by_label: dict[str, list[Run]]) -> Table:
    columns = [
        "",
        "records/s",
        "MB/s",
        "broker CPU s per million",
        "client CPU s",
        "wall s",
        "throughput / Kafka",
    ]
    table = Table(title, columns)
    for label, all_runs in by_label.items():
        rates = [run.rate for run in all_runs]
        table.rows.append(
            [
                label,
                spread(rates, ",.0f"),
                f"{_median(rates) * RECORD_BYTES / 1e6:.0f}",
                spread([run.cpu_per_million for run in all_runs], ".2f"),
                f"{_median([run.client_cpu for run in all_runs]):.2f}",
                f"{_median([run.seconds for run in all_runs]):.2f}",
                "1" if label == KAFKA else show_ratio(_rates(all_runs, by_label.get(KAFKA))),
            ]
        )
    if KAFKA not in by_label:
        table.rows.append([KAFKA, *[NOT_MEASURED] * (len(columns) - 1)])
    return table
