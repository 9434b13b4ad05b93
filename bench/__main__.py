"""`python -m bench`: Fanlog beside Apache Kafka, in under ten minutes, into bench/RESULTS.md.

`throughput`, `producers` or `restart` measures one part alone and only prints it; so does `--quick`, which
takes seconds and serves to check the benchmark itself.
"""

import argparse
import signal
import sys
import time
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import load, machine, producers, restart, throughput
from bench.arena import FULL, QUICK, Arena, Scale, Step
from bench.brokers import BrokerError
from bench.load import LoadError
from bench.peers.kafka import NotAvailable
from bench.report import Section, markdown, print_section


class Part(Protocol):
    """What each of the measuring modules offers."""

    def steps(self, scale: Scale) -> int: ...
    def measure(self, arena: Arena, scale: Scale, step: Step) -> Section: ...


PARTS: dict[str, Part] = {"throughput": throughput, "producers": producers, "restart": restart}
RESULTS = machine.CHECKOUT / "bench" / "RESULTS.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="what to measure; everything by default")
    parser.add_argument("--quick", action="store_true", help="small counts; writes nothing")
    parser.add_argument("--only", choices=["fanlog", "kafka"], help="one broker alone; writes nothing")
    arguments = parser.parse_args()
    parts = [arguments.part] if arguments.part else list(PARTS)
    console = Console() if sys.stdout.isatty() else Console(width=140)
    load.raise_file_limit()
    # A broker under test must not outlive the benchmark: SIGTERM unwinds it like Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(console, parts, QUICK if arguments.quick else FULL, arguments.only)
    except (BrokerError, LoadError, NotAvailable) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1


def run(console: Console, parts: list[str], scale: Scale, only: str | None) -> int:
    begun = time.monotonic()
    with machine.data_directory() as data:
        arena = Arena(data, only)
        setting = machine.describe(data) | {"Fanlog": "", "Kafka": ""}
        setting["Fanlog"] = arena.fanlog_version()
        setting["Kafka"] = arena.kafka_version()
        for key, value in setting.items():
            console.print(f"[bold]{key}[/bold]: {value}", highlight=False)
        sections = [_measure(console, part, arena, scale) for part in parts]
    for section in sections:
        print_section(console, section)
    seconds = time.monotonic() - begun
    console.print(f"took {seconds:.0f} s")
    if scale is FULL and only is None and parts == list(PARTS):
        RESULTS.write_text(markdown(setting, sections, seconds))
        console.print(f"written to {RESULTS.relative_to(machine.CHECKOUT)}")
    return 0


def _measure(console: Console, part: str, arena: Arena, scale: Scale) -> Section:
    module = PARTS[part]
    shown = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(part, total=module.steps(scale))
        started = False

        def step(text: str) -> None:
            nonlocal started
            progress.update(task, description=f"{part}: {text}", advance=1 if started else 0)
            started = True

        return module.measure(arena, scale, step)


if __name__ == "__main__":
    sys.exit(main())
