"""`fanlog demo`: the system at work on this machine, with a crash in the middle.

A fleet of simulated devices publishes readings through the stock Kafka client while a group of two members
reads them. Halfway the broker is killed with SIGKILL and started again on the same directory; nobody tells
the clients. At the end the topic is read once more from its beginning and held against what was acknowledged:
nothing may be missing, nothing twice, and every device's readings must be in order. It exits 0 only if every
check held.

`fanlog.cli.demo_parts` has the broker process and the clients; this module is the story and how it is told.
"""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fanlog.cli.demo_parts import BrokerProcess, Fleet, Member, create_topic, lag, read_all
from fanlog.cli.output import Json, Trouble, console, interrupt, print_json, print_table, teach

DEVICES = 12
PARTITIONS = 4
TOPIC = "sensors"
GROUP = "dashboard"
SECONDS_MAX = 60.0

HELP = teach(
    "Start a broker, publish, consume, kill it halfway, and show that nothing acknowledged was lost.",
    "fanlog demo",
    "fanlog demo --records 50000",
    "fanlog demo --keep ./demo-data",
)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    held: bool
    found: str


def demo(
    records: Annotated[
        int, typer.Option("--records", "-n", min=100, max=1_000_000, help="How many.")
    ] = 20_000,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the broker's data here, for a look at it."),
    ] = None,
    as_json: Json = False,
) -> None:
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Trouble(f"{keep} is not empty: give a directory that the demo may fill")
    # Told to end, it takes its broker along.
    signal.signal(signal.SIGTERM, interrupt)
    home = keep or Path(tempfile.mkdtemp(prefix="fanlog-demo-"))
    try:
        story = Story(home, records, tell=not as_json)
        checks = story.run()
    finally:
        if keep is None:
            shutil.rmtree(home, ignore_errors=True)
    if as_json:
        print_json({"checks": [asdict(each) for each in checks], "figures": story.figures})
    else:
        _show(story, checks, keep)
    raise typer.Exit(0 if all(each.held for each in checks) else 1)


class Story:
    """What happens, in order. `figures` collects what is worth showing."""

    def __init__(self, home: Path, records: int, tell: bool) -> None:
        self.home = home
        self.records = records
        self.tell = tell
        self.deadline = time.monotonic() + SECONDS_MAX
        self.begin = time.monotonic()
        self.figures: dict[str, Any] = {}
        self.members: list[Member] = []

    def say(self, text: str) -> None:
        if self.tell:
            console().print(f"[dim]{time.monotonic() - self.begin:5.1f} s[/dim]  {text}")

    def run(self) -> list[Check]:
        broker = BrokerProcess(self.home)
        try:
            took = broker.start()
            self.say(
                f"a broker runs: pid {broker.pid}, kafka at [bold]{broker.kafka}[/bold], up in {took:.2f} s"
            )
            create_topic(broker.kafka, TOPIC, PARTITIONS)
            self.say(f"topic [bold]{TOPIC}[/bold] with {PARTITIONS} partitions; acknowledged means: on disk")
            fleet = Fleet(broker.kafka, TOPIC, DEVICES, self.records)
            self.members = [Member(broker.kafka, TOPIC, GROUP, f"member-{n}") for n in (1, 2)]
            self._wait("both members have partitions", lambda: all(each.partitions for each in self.members))
            shares = " and ".join(str(len(each.partitions)) for each in self.members)
            self.say(f"group [bold]{GROUP}[/bold]: two members, {shares} partitions")
            self._publish(broker, fleet)
            self._consume(fleet)
            checks = self._check(broker, fleet)
            code = broker.stop()
            self.say("the broker was told to stop, and did")
            return [*checks, Check("the broker stops cleanly on SIGTERM", code == 0, f"exit code {code}")]
        finally:
            for member in self.members:
                member.stop()
            broker.kill()

    def _publish(self, broker: BrokerProcess, fleet: Fleet) -> None:
        self.say(
            f"{DEVICES} devices publish {self.records:,} readings with confluent-kafka, idempotent, acks=all"
        )
        half = self.records // 2
        with self._progress("acknowledged", self.records) as advance:
            begin = time.monotonic()
            while fleet.acknowledged < half:
                self._on_time(f"{half} acknowledgements")
                fleet.publish(half)
                advance(fleet.acknowledged)
            # Half of it is acknowledged, and the next readings are on their way when the blow falls.
            fleet.publish_more(self.records // 4)
            at_crash = fleet.acknowledged
            pid = broker.kill()
            self.say(
                f"[red]kill -9 {pid}[/red] with {at_crash:,} acknowledged and {fleet.in_flight:,} on the way"
            )
            took = broker.start()
            self.say(f"started again on the same directory: pid {broker.pid}, up in {took:.2f} s")
            while fleet.acknowledged < self.records and not fleet.refused:
                self._on_time(f"{self.records} acknowledgements ({fleet.acknowledged} so far)")
                fleet.publish(self.records)
                advance(fleet.acknowledged)
        self.figures |= {
            "records": self.records,
            "acknowledged": fleet.acknowledged,
            "acknowledged_before_crash": at_crash,
            "restart_seconds": round(took, 3),
            "publish_seconds": round(time.monotonic() - begin, 3),
        }
        self.say(f"{fleet.acknowledged:,} readings acknowledged, {fleet.refused} refused")

    def _consume(self, fleet: Fleet) -> None:
        wanted = set(fleet.receipts)
        with self._progress("read by the group", len(wanted)) as advance:
            self._wait("the group has read everything", lambda: self._read(advance) >= wanted)
        for member in self.members:
            member.stop()
        self.figures["members"] = [
            {"member": each.name, "records": each.count, "distinct": len(each.seen)} for each in self.members
        ]

    def _read(self, advance: Any) -> set[tuple[str, int]]:
        seen = set().union(*(each.seen for each in self.members))
        advance(len(seen))
        return seen

    def _check(self, broker: BrokerProcess, fleet: Fleet) -> list[Check]:
        log = read_all(broker.kafka, TOPIC, PARTITIONS)
        self.say("the topic was read once more, from its beginning, and held against the acknowledgements")
        self.figures["partitions"] = [
            {"partition": number, "records": len(held)} for number, held in log.items()
        ]
        everything = [(reading, number, offset) for number, held in log.items() for offset, reading in held]
        places = {reading: (number, offset) for reading, number, offset in everything}
        lost = [each for each in fleet.receipts if each not in places]
        moved = [each for each, place in fleet.receipts.items() if places.get(each, place) != place]
        twice = len(everything) - len(places)
        disorder = sum(_disordered([reading for _, reading in held]) for held in log.values())
        seen = set().union(*(each.seen for each in self.members))
        unread = len(set(fleet.receipts) - seen)
        again = sum(each.count for each in self.members) - len(seen)
        behind = lag(broker.kafka, GROUP)
        worked = [each.name for each in self.members if each.count]
        return [
            Check(
                "every reading was acknowledged",
                fleet.acknowledged == self.records,
                f"{fleet.acknowledged:,}",
            ),
            Check("nothing acknowledged was lost", not lost, f"{len(lost)} lost"),
            Check(
                "every reading is at the offset it was acknowledged with",
                not moved,
                f"{len(moved)} elsewhere",
            ),
            Check("nothing is there twice", twice == 0, f"{twice} twice"),
            Check("each device's readings are in order", disorder == 0, f"{disorder} out of order"),
            Check(
                "the group read everything",
                unread == 0,
                f"{unread} unread, {again} redelivered after the crash",
            ),
            Check("both members worked", len(worked) == 2, ", ".join(worked) or "none"),
            Check("the group's offsets are at the end", behind == 0, f"{behind} behind"),
        ]

    def _on_time(self, what: str) -> None:
        if time.monotonic() > self.deadline:
            raise Trouble(f"the demo gave up after {SECONDS_MAX:.0f} s, waiting for: {what}")

    def _wait(self, what: str, condition: Any) -> None:
        while not condition():
            self._on_time(what)
            for member in self.members:
                member.check()
            time.sleep(0.02)

    @contextmanager
    def _progress(self, what: str, total: int) -> Iterator[Any]:
        """A bar where somebody watches; elsewhere the sentences are enough."""
        if not (self.tell and console().is_terminal):
            yield lambda _: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console(), transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda count: progress.update(task, completed=count)


def _disordered(readings: list[tuple[str, int]]) -> int:
    last: dict[str, int] = {}
    wrong = 0
    for device, sequence in readings:
        wrong += sequence <= last.get(device, -1)
        last[device] = max(sequence, last.get(device, -1))
    return wrong


def _show(story: Story, checks: list[Check], keep: Path | None) -> None:
    out = console()
    out.print()
    print_table(
        "partitions", ["partition", "records"], [list(each.values()) for each in story.figures["partitions"]]
    )
    print_table(
        f"group {GROUP}",
        ["member", "records delivered", "of them distinct"],
        [list(each.values()) for each in story.figures["members"]],
    )
    out.print()
    for each in checks:
        mark = "[green]held [/green]" if each.held else "[red]broken[/red]"
        out.print(f"{mark} {each.name} [dim]({each.found})[/dim]")
    seconds = time.monotonic() - story.begin
    failed = sum(not each.held for each in checks)
    verdict = "[green]every check held[/green]" if not failed else f"[red]{failed} checks failed[/red]"
    out.print(f"\n{verdict}, in {seconds:.1f} s")
    if keep is not None:
        out.print(f"the data is kept: fanlog serve --data {keep / 'data'}")
