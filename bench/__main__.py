"""`python -m bench`: Fanlog beside Apache Kafka, and beside Mosquitto and NATS, in under ten minutes.

`kafka` or `mqtt` measures one half of it; each half writes a file of results. A part (`throughput`,
`fanout`, ...) is measured alone and only printed; so is anything with `--quick`, which takes seconds and
serves to check the benchmark itself, with `--only` and with `--row`.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import arena, contest, fanout, idle, ingest, latency, load, machine, producers, restart, throughput
from bench.arena import Arena, Step
from bench.brokers import BrokerError
from bench.contest import Contest
from bench.load import LoadError
from bench.peers import NotAvailable
from bench.report import Section, markdown, print_section

PREFACE = (
    "Written by the benchmark itself; run it again with `make bench`, which takes under ten minutes, or "
    "`python -m bench {half}` for this half of it. {needs} One part alone: {parts}. The brokers ran on one "
    "machine in one run, never under load at the same time, with the same clients. Figures are medians; the "
    "least and the greatest of the rounds stand in brackets."
)


class Part(Protocol):
    """What each of the measuring modules offers; the brokers and the scale are those of its half."""

    def steps(self, scale: Any) -> int: ...
    def measure(self, brokers: Any, scale: Any, step: Step) -> Section: ...


@dataclass(frozen=True, slots=True)
class Half:
    """Some parts that are measured beside the same peers."""

    title: str
    needs: str
    results: Path
    parts: dict[str, Part]
    brokers: Callable[[Path, argparse.Namespace], Any]
    scales: tuple[Any, Any]

    def preface(self, name: str) -> str:
        parts = ", ".join(f"`python -m bench {part}`" for part in self.parts)
        return PREFACE.format(half=name, needs=self.needs, parts=parts)


HALVES = {
    "kafka": Half(
        "Fanlog beside Apache Kafka",
        "It needs a C compiler and kcat, and Java 17 and Maven for the Kafka columns.",
        machine.CHECKOUT / "bench" / "RESULTS.md",
        {"throughput": throughput, "producers": producers, "restart": restart},
        lambda data, arguments: Arena(data, arguments.only),
        (arena.FULL, arena.QUICK),
    ),
    "mqtt": Half(
        "Fanlog beside Mosquitto and NATS",
        "It needs a C compiler, and mosquitto and nats-server for their columns.",
        machine.CHECKOUT / "bench" / "RESULTS-mqtt.md",
        {"fanout": fanout, "ingest": ingest, "idle": idle, "latency": latency},
        lambda data, arguments: Contest(data, arguments.only, arguments.row),
        (contest.FULL, contest.QUICK),
    ),
}
# Whose half a peer belongs to; Fanlog is in both.
PEERS = {"kafka": "kafka", "mosquitto": "mqtt", "nats": "mqtt"}
PARTS = {part: name for name, half in HALVES.items() for part in half.parts}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*HALVES, *PARTS], help="everything by default")
    parser.add_argument("--quick", action="store_true", help="small counts; writes nothing")
    parser.add_argument("--only", choices=["fanlog", *PEERS], help="one broker alone")
    parser.add_argument(
        "--row", default="", help="fanout: only rows with these words, '1->1000 qos0 100B w100'"
    )
    arguments = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=170)
    load.raise_file_limit()
    # A broker under test must not outlive the benchmark: SIGTERM unwinds it like Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    halves = [PARTS.get(arguments.part, arguments.part)] if arguments.part else list(HALVES)
    halves = [name for name in halves if PEERS.get(arguments.only, name) == name]
    if not halves:
        parser.error(f"{arguments.only} has no part in {arguments.part}")
    try:
        for name in halves:
            parts = [arguments.part] if arguments.part in PARTS else list(HALVES[name].parts)
            run(console, name, parts, arguments)
    except (BrokerError, LoadError, NotAvailable) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return 1
    return 0


def run(console: Console, name: str, parts: list[str], arguments: argparse.Namespace) -> None:
    half = HALVES[name]
    begun = time.monotonic()
    scale = half.scales[1 if arguments.quick else 0]
    with machine.data_directory() as data:
        brokers = half.brokers(data, arguments)
        setting = machine.describe(data) | brokers.versions()
        for key, value in setting.items():
            console.print(f"[bold]{key}[/bold]: {value}", highlight=False)
        sections = [_measure(console, part, half.parts[part], brokers, scale) for part in parts]
    for section in sections:
        print_section(console, section)
    seconds = time.monotonic() - begun
    console.print(f"took {seconds:.0f} s")
    partial = arguments.quick or arguments.only or arguments.row or parts != list(half.parts)
    if not partial:
        half.results.write_text(markdown(half.title, half.preface(name), setting, sections, seconds))
        console.print(f"written to {half.results.relative_to(machine.CHECKOUT)}")


def _measure(console: Console, name: str, part: Part, brokers: Any, scale: Any) -> Section:
    shown = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(name, total=part.steps(scale))
        started = False

        def step(text: str) -> None:
            nonlocal started
            progress.update(task, description=f"{name}: {text}", advance=1 if started else 0)
            started = True

        return part.measure(brokers, scale, step)


if __name__ == "__main__":
    sys.exit(main())
