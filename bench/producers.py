"""One record per request: what batching in the client cannot help with, and group commit can.

Each of N producers has a connection and one outstanding request with one record of 100 B at acks=all.
Fanlog counts its fsyncs itself (`fanlog_fsyncs_total`); Kafka with flush.messages=1 makes one per append by
definition, at its defaults none before it acknowledges. The partition's end offset must equal what was
acknowledged.
"""

from collections import defaultdict
from dataclasses import dataclass

from bench import load
from bench.arena import (
    FANLOG_DISK,
    FANLOG_OS,
    KAFKA,
    KAFKA_FLUSHED,
    Arena,
    Scale,
    Step,
    Variant,
    rotated,
)
from bench.brokers import BrokerError, create_topic, end_offset
from bench.machine import sync_disk
from bench.report import NOT_MEASURED, Section, Table, at_least, ratio, show_ratio, spread

LABELS = (FANLOG_OS, FANLOG_DISK, KAFKA, KAFKA_FLUSHED)
# Like with like: what survives kill -9 of the broker, and what survives a power cut.
PEER_OF = {FANLOG_OS: KAFKA, FANLOG_DISK: KAFKA_FLUSHED}
# Kafka does not count its fsyncs; what its settings say of them is all that is known here.
UNCOUNTED = {KAFKA: "none waited for", KAFKA_FLUSHED: "1,000, by definition"}


@dataclass(frozen=True, slots=True)
class Load:
    producers: int
    partitions: int

    @property
    def title(self) -> str:
        return f"{_count(self.producers, 'producer')}, {_count(self.partitions, 'partition')}"


@dataclass(frozen=True, slots=True)
class Run:
    rate: float
    p50_ms: float
    p99_ms: float
    fsyncs_per_thousand: float | None
    broker_cpu_per_thousand: float
    client_cores: float


def loads(scale: Scale) -> list[Load]:
    """Kafka syncs partition by partition, so its fairest case is several of them: one load has eight."""
    return [*(Load(n, 1) for n in scale.producers), Load(64, 8)]


def steps(scale: Scale) -> int:
    return len(LABELS) * (1 + scale.producer_rounds * len(loads(scale)))


def measure(arena: Arena, scale: Scale, step: Step) -> Section:
    runs: dict[tuple[Load, str], list[Run]] = defaultdict(list)
    with arena.variants(*LABELS) as variants:
        for variant in variants:
            step(f"warming up {variant.label}")
            _one_run(variant, f"warm-{variants.index(variant)}", Load(64, 1), scale)
        for number in range(scale.producer_rounds):
            for each in loads(scale):
                for variant in rotated(variants, number):
                    step(f"round {number + 1}: {each.title}, {variant.label}")
                    topic = f"p{each.producers}-{each.partitions}-{number}-{variants.index(variant)}"
                    runs[each, variant.label].append(_one_run(variant, topic, each, scale))
    return _section(runs, scale)


def _one_run(variant: Variant, topic: str, each: Load, scale: Scale) -> Run:
    broker = variant.broker
    create_topic(broker.address, topic, partitions=each.partitions, config=variant.config)
    sync_disk()
    fsyncs, cpu = broker.fsyncs(), broker.cpu()
    result = load.produce(
        broker.address,
        topic,
        connections=each.producers,
        partitions=each.partitions,
        warmup=scale.warmup_seconds,
        seconds=scale.producer_seconds,
    )
    cpu = broker.cpu() - cpu
    ends = [end_offset(broker.address, topic, partition) or 0 for partition in range(each.partitions)]
    if sum(ends) != result["total"]:
        raise BrokerError(
            f"{broker.name}: {topic} holds {sum(ends)} records, {result['total']} were acknowledged"
        )
    per_thousand = None
    if fsyncs is not None:
        per_thousand = ((broker.fsyncs() or 0) - fsyncs) / result["total"] * 1000
    return Run(
        rate=result["publishes"] / result["seconds"],
        p50_ms=result["p50_ms"],
        p99_ms=result["p99_ms"],
        fsyncs_per_thousand=per_thousand,
        broker_cpu_per_thousand=cpu / result["total"] * 1000,
        client_cores=result["cpu"] / result["total_seconds"],
    )


def _section(runs: dict[tuple[Load, str], list[Run]], scale: Scale) -> Section:
    section = Section("One record of 100 B per request, acks=all")
    for each in loads(scale):
        section.tables.append(_table(each, {label: runs.get((each, label), []) for label in LABELS}))
    section.notes = [
        "`Fanlog, os` stands beside `Kafka, default`: both acknowledge what the operating system has taken. "
        "`Fanlog, disk` stands beside `Kafka, flush.messages=1`: both acknowledge what an fsync has covered.",
        "Kafka's fsyncs were not counted: at flush.messages=1 there is one per append, by its definition.",
        "The generator is one thread; its share of a core is in the last column.",
    ]
    disk = runs.get((Load(64, 1), FANLOG_DISK))
    if disk:
        fsyncs = _median([run.fsyncs_per_thousand or 0.0 for run in disk])
        per_fsync = 1000 / fsyncs if fsyncs else None
        section.targets.append(
            at_least("64 producers at level disk: at least 10 publishes per fsync", per_fsync, 10, ".1f")
        )
    return section


def _table(each: Load, by_label: dict[str, list[Run]]) -> Table:
    columns = ["", "publishes/s", "p50 ms", "p99 ms", "fsyncs per 1,000", "broker CPU ms per 1,000"]
    table = Table(each.title, [*columns, "throughput / Kafka", "generator, cores"])
    for label, all_runs in by_label.items():
        if not all_runs:
            table.rows.append([label, *[NOT_MEASURED] * (len(table.columns) - 1)])
            continue
        peer = by_label.get(PEER_OF.get(label, ""), [])
        against = ratio([run.rate for run in all_runs], [run.rate for run in peer])
        fsyncs = [run.fsyncs_per_thousand for run in all_runs if run.fsyncs_per_thousand is not None]
        table.rows.append(
            [
                label,
                spread([run.rate for run in all_runs], ",.0f"),
                f"{_median([run.p50_ms for run in all_runs]):.2f}",
                f"{_median([run.p99_ms for run in all_runs]):.2f}",
                f"{_median(fsyncs):,.1f}" if fsyncs else UNCOUNTED[label],
                f"{_median([run.broker_cpu_per_thousand for run in all_runs]) * 1000:.1f}",
                show_ratio(against) if label in PEER_OF else "1",
                f"{_median([run.client_cores for run in all_runs]):.2f}",
            ]
        )
    return table


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
